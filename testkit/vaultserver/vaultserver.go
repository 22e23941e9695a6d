package vaultserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/external-secrets/eso/testkit/buildcache"
	"github.com/external-secrets/eso/testkit/process"
)

const (
	program      = "vaultserver"
	startTimeout = 60 * time.Second
	stopTimeout  = 10 * time.Second
	// errorLines is how much of the program's output an error quotes.
	errorLines = 15
)

// Options choose how a server runs. The zero value serves.
type Options struct {
	// Log receives the server's output, one whole line per Write, as
	// "[vaultserver] line"; it must be safe for concurrent use. May be nil.
	Log io.Writer
	// Progress receives a line per step when the program has to be built
	// first. May be nil.
	Progress io.Writer
	// CountRequests puts a proxy before the server that counts what comes in;
	// Address is then the proxy's.
	CountRequests bool
	// TLSCert and TLSKey are files with a certificate, with which it serves TLS,
	// too, at SecuredAddress. Empty means that it does not.
	TLSCert, TLSKey string
}

// Server is a Vault that runs. Its methods are safe for concurrent use, except
// Stop, which is called once and last.
type Server struct {
	process   *process.Process
	address   string // Of the process itself.
	secured   string // Where it serves TLS.
	rootToken string
	client    *http.Client
	proxy     *proxy // Nil unless requests are counted.
}

// Start starts a server and returns when it answers and its engines can be
// used. Every server is empty, on a port of its own and with a root token of
// its own, so any number may run beside each other. The program is built first
// if this machine has not done so (package buildcache).
//
// Ctx bounds the start and has no influence afterwards. A start that fails
// leaves no process behind. The server ends with the calling process, however
// that ends. On success the caller must call Stop.
func Start(ctx context.Context, opts Options) (*Server, error) {
	module := buildcache.Module{
		Dir:      "testkit/vaultserver/build",
		Programs: map[string]string{program: "."},
		LDFlags:  "-s -w",
	}
	dir, err := buildcache.Build(ctx, []buildcache.Module{module}, opts.Progress)
	if err != nil {
		return nil, err
	}
	s := &Server{
		rootToken: "root-" + rand.Text(),
		// Never through a proxy of the environment: the server is on loopback.
		client: &http.Client{Transport: &http.Transport{}, Timeout: requestTimeout},
	}
	if err := s.start(ctx, filepath.Join(dir, program), opts); err != nil {
		return nil, fmt.Errorf("cannot start Vault: %w", errors.Join(err, s.Stop()))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, path string, opts Options) error {
	addresses, secured := make(chan string, 1), make(chan string, 1)
	args := []string{"-listen", "127.0.0.1:0", "-root-token", s.rootToken}
	if opts.TLSCert != "" {
		args = append(args, "-tls-cert", opts.TLSCert, "-tls-key", opts.TLSKey)
	}
	var err error
	s.process, err = process.Start(ctx, process.Options{
		Name:      program,
		Path:      path,
		Args:      args,
		Log:       opts.Log,
		HoldStdin: true,
		OnLine: func(line string) {
			if address, ok := strings.CutPrefix(line, "secured "); ok {
				select {
				case secured <- address:
				default: // It says so once.
				}
			}
			address, ok := strings.CutPrefix(line, "ready ")
			if !ok {
				return
			}
			select {
			case addresses <- address:
			default: // It says so once.
			}
		},
	})
	if err != nil {
		return err
	}
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case s.address = <-addresses:
		if opts.TLSCert != "" {
			s.secured = <-secured // It said that before.
		}
	case <-s.process.Done():
		return errors.Join(errors.New("it ended before it was ready"), s.process.Err(), errors.New(s.tail()))
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("it is not ready after %s\n%s", startTimeout, s.tail())
	}
	if opts.CountRequests {
		s.proxy, err = startProxy(s.address)
	}
	return err
}

func (s *Server) tail() string {
	return strings.Join(s.process.LogTail(errorLines), "\n")
}

// Address is the base URL that clients use, such as "http://127.0.0.1:43121".
func (s *Server) Address() string {
	if s.proxy != nil {
		return s.proxy.address
	}
	return s.address
}

// SecuredAddress is the URL at which the server speaks TLS; empty where
// Options gave no certificate.
func (s *Server) SecuredAddress() string { return s.secured }

// RootToken is a token that may do everything, different for every server.
func (s *Server) RootToken() string {
	return s.rootToken
}

// Requests says how often each request has come in at Address so far, by method
// and path without query, such as "GET /v1/secret/data/app". A list, which
// clients ask for in two ways, is always "LIST". Requests of Write, Delete and
// Request are not counted. It is nil without Options.CountRequests.
func (s *Server) Requests() map[string]int {
	if s.proxy == nil {
		return nil
	}
	return s.proxy.requests()
}

// Stop ends the server. Its data is lost.
func (s *Server) Stop() error {
	var errs []error
	if s.proxy != nil {
		errs = append(errs, s.proxy.stop())
	}
	s.client.CloseIdleConnections()
	if s.process != nil {
		errs = append(errs, s.process.Stop(stopTimeout))
	}
	return errors.Join(errs...)
}
