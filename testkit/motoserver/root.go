package motoserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/external-secrets/eso/testkit/buildcache"
	"github.com/external-secrets/eso/testkit/process"
)

const (
	// ProgramEnv names the environment variable that points at a moto_server to
	// use.
	ProgramEnv = "ESO_MOTO_SERVER"

	// WithoutEnv names the environment variable that lists what a machine has to
	// do without: "moto" there leaves out the tests that need it. Continuous
	// integration has everything.
	WithoutEnv = "EXTERNAL_SECRETS_E2E_WITHOUT"

	// suite of Debian that has moto.
	suite = "forky"
	// cacheKey changes when what is installed does.
	cacheKey = "moto-" + suite + "-1"

	installTimeout = 10 * time.Minute
	stopTimeout    = 10 * time.Second
	// errorLines is how much of a program's output an error quotes.
	errorLines = 20
)

// errUnavailable means that there is no moto here and none can be installed.
var errUnavailable = errors.New("there is no moto: set " + ProgramEnv + " to a moto_server (pip install 'moto[server]'), run on Debian as root, or leave its tests out with " + WithoutEnv + "=moto")

// Waived reports whether tests may do without moto on this machine.
func Waived() bool {
	return os.Getenv("CI") == "" && slices.Contains(strings.Split(os.Getenv(WithoutEnv), ","), "moto")
}

// packages that are installed besides Debian's smallest system.
func packages() []string { return []string{"python3-moto", "python3-flask", "python3-flask-cors"} }

// program gives the command line of a moto_server, and its working folder.
func program(ctx context.Context, log, progress io.Writer) (args []string, err error) {
	if given := os.Getenv(ProgramEnv); given != "" {
		path, err := exec.LookPath(given)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s: %w", ProgramEnv, err)
		}

		return []string{path}, nil
	}

	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return nil, errUnavailable
	}

	dir, err := buildcache.Make(ctx, cacheKey+"-"+runtime.GOARCH, progress, func(ctx context.Context, dir string) error {
		ctx, cancel := context.WithTimeout(ctx, installTimeout)
		defer cancel()

		return install(ctx, log, filepath.Join(dir, "root"))
	})
	if err != nil {
		return nil, err
	}

	chroot, err := exec.LookPath("chroot")
	if err != nil {
		return nil, fmt.Errorf("cannot run moto: %w", err)
	}

	return []string{chroot, filepath.Join(dir, "root"), "/usr/bin/moto_server"}, nil
}

// install makes a root file system with moto. Those who made the package cache
// of this machine may have let it grow old: that a list of packages has expired
// is no obstacle.
func install(ctx context.Context, log io.Writer, root string) error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		for _, args := range [][]string{
			{"apt-get", "update"},
			{"apt-get", "install", "-y", "--no-install-recommends", "mmdebstrap", "debian-archive-keyring"},
		} {
			if err := run(ctx, log, args...); err != nil {
				return err
			}
		}
	}

	return run(ctx, log, "mmdebstrap", "--variant=minbase", "--mode=root", `--aptopt=Acquire::Check-Valid-Until "false"`,
		"--include="+strings.Join(packages(), ","), suite, root)
}

// run runs a program to its end.
func run(ctx context.Context, log io.Writer, args ...string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("cannot install moto: %w", err)
	}

	p, err := process.Start(ctx, process.Options{
		Name: args[0], Path: path, Args: args[1:], Log: log,
		Env: append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"),
	})
	if err != nil {
		return err
	}

	select {
	case <-p.Done():
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.Stop(stopTimeout))
	}

	if err := p.Err(); err != nil {
		return fmt.Errorf("%w; its last output:\n%s", err, strings.Join(p.LogTail(errorLines), "\n"))
	}

	return nil
}
