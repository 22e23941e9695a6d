package server

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// settings are the flags of a provider process.
type settings struct {
	Options

	// listen is host:port, or unix:///path for a socket without TLS that only
	// processes of SocketPeerUID may use.
	listen string
	// kubeconfig is a file; empty means KUBECONFIG, then the Pod's own.
	kubeconfig string
	logLevel   slog.Level
	// logFormat is json or text.
	logFormat string
}

func (s *settings) register(flags *flag.FlagSet) {
	flags.StringVar(&s.listen, "listen", ":8443", "host:port to serve gRPC on, or unix:///path for a socket without TLS")
	flags.StringVar(&s.TLSDir, "tls-dir", "/var/run/secrets/external-secrets.io/tls", "folder with tls.crt, tls.key and ca.crt; reloaded when they change")
	flags.StringVar(&s.WorkloadAPI, "spiffe-endpoint-socket", "", "address of the SPIFFE Workload API, such as unix:///run/spire/agent.sock, from which certificates are taken in place of --tls-dir")
	flags.StringVar(&s.OperatorIdentity, "operator-identity", pb.OperatorIdentity, "URI name that a caller's certificate must have; with --spiffe-endpoint-socket the operator's SPIFFE ID")
	flags.IntVar(&s.SocketPeerUID, "socket-peer-uid", os.Getuid(), "user that callers at a unix socket must run as; default this process's own")
	flags.Func("caller", "ServiceAccount, as namespace/name, whose token calls must carry; repeat for more; none means that calls need no token", func(text string) error {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%q is not of the form namespace/name", text)
		}

		s.Callers = append(s.Callers, types.NamespacedName{Namespace: namespace, Name: name})

		return nil
	})
	flags.StringVar(&s.TokenAudience, "token-audience", "", "audience that callers' tokens must be for; default the identity in the certificate that the operator has issued to this provider")
	flags.Func("own-identity-namespace", "namespace whose configs may log in as the provider itself, such as with its Pod's ServiceAccount or a cloud's instance role; repeat for more, * for all; default none", func(text string) error {
		if text == "" {
			return errors.New("a namespace, or *")
		}

		s.OwnIdentity = append(s.OwnIdentity, text)

		return nil
	})
	flags.StringVar(&s.MetricsListen, "metrics-listen", ":8080", "host:port for /metrics, /healthz and /readyz; empty for none")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig file; default KUBECONFIG, then the Pod's own ServiceAccount")
	flags.BoolVar(&s.Reflection, "reflection", false, "serve gRPC reflection")
	flags.DurationVar(&s.Grace, "shutdown-grace", 20*time.Second, "how long calls in flight may take at shutdown")
	flags.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	flags.StringVar(&s.logFormat, "log-format", "json", "json or text")
}

func (s *settings) validate() error {
	var errs []error

	if s.listen == "" {
		errs = append(errs, errors.New("--listen: must not be empty"))
	}

	if path, ok := strings.CutPrefix(s.listen, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			errs = append(errs, fmt.Errorf("--listen: %q: a unix socket needs an absolute path, as in unix:///run/provider.sock", s.listen))
		}

		if len(s.Callers) > 0 {
			errs = append(errs, errors.New("--caller: tokens travel over TLS only, and --listen is a unix socket"))
		}
	} else {
		errs = append(errs, s.validateTLS())
	}

	if s.MetricsListen != "" {
		if _, _, err := net.SplitHostPort(s.MetricsListen); err != nil {
			errs = append(errs, fmt.Errorf("--metrics-listen: %w", err))
		}
	}

	if s.Grace < 0 {
		errs = append(errs, errors.New("--shutdown-grace: must not be negative"))
	}

	if s.logFormat != "json" && s.logFormat != "text" {
		errs = append(errs, fmt.Errorf("--log-format: %q is neither json nor text", s.logFormat))
	}

	return errors.Join(errs...)
}

// validateTLS checks the flags that a network address needs.
func (s *settings) validateTLS() error {
	var errs []error

	if _, _, err := net.SplitHostPort(s.listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen: %w", err))
	}

	if s.OperatorIdentity == "" {
		errs = append(errs, errors.New("--operator-identity: must not be empty"))
	}

	if s.WorkloadAPI == "" {
		if s.TLSDir == "" {
			errs = append(errs, errors.New("--tls-dir: needed to listen on a network address"))
		}

		return errors.Join(errs...)
	}

	if err := workloadapi.ValidateAddress(s.WorkloadAPI); err != nil {
		errs = append(errs, fmt.Errorf("--spiffe-endpoint-socket: %w", err))
	}

	if s.OperatorIdentity == pb.OperatorIdentity {
		errs = append(errs, errors.New("--operator-identity: with --spiffe-endpoint-socket it must be the operator's SPIFFE ID"))
	}

	if len(s.Callers) > 0 && s.TokenAudience == "" {
		errs = append(errs, errors.New("--token-audience: needed with --caller and --spiffe-endpoint-socket: an SVID does not contain it"))
	}

	return errors.Join(errs...)
}

func (s *settings) logger(w io.Writer) *slog.Logger {
	handler := &slog.HandlerOptions{Level: s.logLevel}
	if s.logFormat == "text" {
		return slog.New(slog.NewTextHandler(w, handler))
	}

	return slog.New(slog.NewJSONHandler(w, handler))
}

// listener opens the listening address.
func (s *settings) listener() (net.Listener, error) {
	path, unix := strings.CutPrefix(s.listen, "unix://")
	if !unix {
		l, err := net.Listen("tcp", s.listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on --listen %s: %w", s.listen, err)
		}

		return l, nil
	}

	// A socket that a killed process left behind would block the address.
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("cannot remove the stale socket: %w", err)
		}
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on --listen %s: %w", s.listen, err)
	}

	// The user of the peer, which the kernel reports, decides who may connect; the
	// file mode refuses other users earlier where it can.
	mode := os.FileMode(0o600)
	if s.SocketPeerUID != os.Getuid() {
		mode = 0o666
	}

	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot protect the socket: %w", err), l.Close())
	}

	return l, nil
}
