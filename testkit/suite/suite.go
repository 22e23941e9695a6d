package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/vaultserver"
)

const (
	// startTimeout bounds the start of everything, and builds of servers that
	// this machine has not built before.
	startTimeout = 25 * time.Minute
	// parallel is how many tests run at the same time: they wait for processes
	// most of the time.
	parallel = 12
)

// Options choose what runs. The zero value is an operator alone.
type Options struct {
	// Providers to install and start, by name, each with further flags. Their
	// programs and manifests are inputs of the tests, which declare them (package
	// selection).
	Providers map[string][]string
	// Programs are the names of further providers, which tests start themselves.
	Programs []string
	// Vault starts a Vault that counts the requests which it receives.
	Vault bool
	// OperatorFlags are added to the operator's.
	OperatorFlags []string
	// Prepare is called before the operator is started, and may add to
	// OperatorFlags. May be nil.
	Prepare func(ctx context.Context, s *Suite) error
	// Stop is called after the tests, when the product has been stopped. May be nil.
	Stop func()
	// Serial runs tests that call t.Parallel one after the other, too.
	Serial bool
}

// Suite is a running product. Its methods are safe for concurrent use, but for
// those of Installation that start and stop the operator.
type Suite struct {
	*installation.Installation

	// Vault is the server that Options ask for; nil without.
	Vault *vaultserver.Server
	// Providers are those that Options ask for, by name.
	Providers map[string]*installation.Provider
	// OperatorFlags are those that the operator was started with.
	OperatorFlags []string
	// SocketDir is where the operator accepts unix sockets of providers. Its path
	// is short enough for one.
	SocketDir string
	// LogFile has the output of all processes.
	LogFile string

	dynamic *dynamic.DynamicClient
}

// Main runs the tests of a package with a product, which it assigns to suite
// before the first of them, and ends the process. It is called by TestMain.
func Main(m *testing.M, suite **Suite, options Options) {
	flag.Parse()

	code, err := run(m, suite, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M, suite **Suite, options Options) (code int, err error) {
	if err := setParallel(options.Serial); err != nil {
		return 1, err
	}

	log, err := os.CreateTemp("", "external-secrets-suite-*.log")
	if err != nil {
		return 1, fmt.Errorf("cannot create a log file: %w", err)
	}

	s := &Suite{OperatorFlags: slices.Clone(options.OperatorFlags), LogFile: filepath.Clean(log.Name()), Providers: map[string]*installation.Provider{}}

	defer func() {
		err = errors.Join(err, s.stop())

		if options.Stop != nil {
			options.Stop()
		}

		_ = log.Close()

		if code == 0 && err == nil {
			_ = os.Remove(s.LogFile)
		} else {
			fmt.Fprintln(os.Stderr, "the output of all processes is in", s.LogFile)
		}
	}()

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()

	if err := s.start(ctx, log, options); err != nil {
		return 1, err
	}

	*suite = s

	if code = m.Run(); code != 0 {
		return code, nil
	}

	// The API server records a watch when it ends.
	s.StopProcesses()

	return code, s.recordRights()
}

// setParallel lets tests run in parallel, unless the caller of the tests has
// decided about it.
func setParallel(serial bool) error {
	given := false

	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })

	if given {
		return nil
	}

	limit := parallel
	if serial {
		limit = 1
	}

	if err := flag.Set("test.parallel", strconv.Itoa(limit)); err != nil {
		return fmt.Errorf("cannot let tests run in parallel: %w", err)
	}

	return nil
}

func (s *Suite) start(ctx context.Context, log io.Writer, options Options) (err error) {
	if s.SocketDir, err = os.MkdirTemp("", "eso-"); err != nil {
		return fmt.Errorf("cannot create a folder for sockets: %w", err)
	}

	if options.Vault {
		if s.Vault, err = vaultserver.Start(ctx, vaultserver.Options{Log: log, Progress: os.Stderr, CountRequests: true}); err != nil {
			return err
		}
	}

	names := slices.Clone(options.Programs)
	for name := range options.Providers {
		names = append(names, name)
	}

	audited, err := auditFlags(s.SocketDir)
	if err != nil {
		return err
	}

	if s.Installation, err = installation.Start(ctx, installation.Options{Log: log, Progress: os.Stderr, APIServerFlags: audited, Providers: names}); err != nil {
		return err
	}

	if s.dynamic, err = dynamic.NewForConfig(s.ControlPlane.Config()); err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}

	s.OperatorFlags = append(s.OperatorFlags, "--provider-socket-dir", s.SocketDir)

	if options.Prepare != nil {
		if err := options.Prepare(ctx, s); err != nil {
			return err
		}
	}

	if err := s.StartOperator(ctx, s.OperatorFlags...); err != nil {
		return err
	}

	for name, flags := range options.Providers {
		if s.Providers[name], err = s.StartProvider(ctx, name, flags...); err != nil {
			return err
		}
	}

	return nil
}

func (s *Suite) stop() error {
	var errs []error

	if s.Installation != nil {
		errs = append(errs, s.Stop())
	}

	if s.Vault != nil {
		_ = s.Vault.Stop() // it ends with this process in any case
	}

	return errors.Join(append(errs, os.RemoveAll(s.SocketDir))...)
}
