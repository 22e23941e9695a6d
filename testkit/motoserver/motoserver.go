package motoserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/external-secrets/eso/testkit/process"
)

const startTimeout = 60 * time.Second

// listening is the line by which moto says where it listens.
var listening = regexp.MustCompile(`Running on (http://127\.0\.0\.1:[0-9]+)`)

// Options choose how a server runs. The zero value serves.
type Options struct {
	// Log receives the output of all programs, one whole line per Write; it must
	// be safe for concurrent use. May be nil.
	Log io.Writer
	// Progress receives a line per step when moto has to be installed first. May
	// be nil.
	Progress io.Writer
}

// Server is a moto that runs, behind a proxy. Its methods are safe for
// concurrent use, except Stop, which is called once and last.
type Server struct {
	process *process.Process
	proxy   *proxy
	client  *http.Client
}

// Start starts a server and returns when it answers. Every server is empty and
// on a port of its own. The error is errUnavailable where there is no moto.
//
// Ctx bounds the start and has no influence afterwards. The server ends with the
// calling process, however that ends. On success the caller must call Stop.
func Start(ctx context.Context, opts Options) (*Server, error) {
	command, err := program(ctx, opts.Log, opts.Progress)
	if err != nil {
		return nil, err
	}

	s := &Server{client: &http.Client{Transport: &http.Transport{}, Timeout: requestTimeout}}
	if err := s.start(ctx, command, opts); err != nil {
		return nil, fmt.Errorf("cannot start moto: %w", errors.Join(err, s.Stop()))
	}

	return s, nil
}

func (s *Server) start(ctx context.Context, command []string, opts Options) error {
	addresses := make(chan string, 1)

	var err error

	s.process, err = process.Start(ctx, process.Options{
		Name: "moto", Path: command[0], Args: append(command[1:], "-H", "127.0.0.1", "-p", "0"), Log: opts.Log,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/tmp", "PYTHONUNBUFFERED=1", "LC_ALL=C.UTF-8"},
		OnLine: func(line string) {
			if match := listening.FindStringSubmatch(line); match != nil {
				select {
				case addresses <- match[1]:
				default: // It says so once.
				}
			}
		},
	})
	if err != nil {
		return err
	}

	timer := time.NewTimer(startTimeout)
	defer timer.Stop()

	select {
	case address := <-addresses:
		s.proxy, err = startProxy(address)

		return err
	case <-s.process.Done():
		return errors.Join(errors.New("it ended before it was ready"), s.process.Err(), errors.New(s.tail()))
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("it is not ready after %s\n%s", startTimeout, s.tail())
	}
}

func (s *Server) tail() string { return strings.Join(s.process.LogTail(errorLines), "\n") }

// Address is what AWS_ENDPOINT_URL is set to.
func (s *Server) Address() string { return s.proxy.address }

// Requests says how often each operation, such as GetSecretValue, has come in
// so far. Those of Call are not counted.
func (s *Server) Requests() map[string]int { return s.proxy.requests() }

// RequestsBy counts likewise, of those that are signed with an access key.
func (s *Server) RequestsBy(accessKeyID string) map[string]int {
	return s.proxy.requestsBy(accessKeyID)
}

// Refuse has requests that are signed with an access key refused, as AWS does
// with a key that it does not know; Accept ends that.
func (s *Server) Refuse(accessKeyID string) { s.proxy.refuse(accessKeyID, unknown) }

// Expire has requests that are signed with an access key refused, as AWS does
// with temporary credentials that have ended.
func (s *Server) Expire(accessKeyID string) { s.proxy.refuse(accessKeyID, expired) }

// Accept takes an access key again.
func (s *Server) Accept(accessKeyID string) { s.proxy.refuse(accessKeyID, accepted) }

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
