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
	"github.com/external-secrets/eso/sdk/provider"
)

// Options of a provider process. Main reads them from flags.
type Options struct {
	// Listen is host:port, or unix:///path for a socket without TLS that only
	// processes of SocketPeerUID may use.
	Listen string
	// TLSDir holds tls.crt, tls.key and ca.crt, which are read again when they
	// change.
	TLSDir string
	// WorkloadAPI is the address of the SPIFFE Workload API, from which
	// certificates are taken in place of TLSDir; empty means none.
	WorkloadAPI string
	// OperatorIdentity that a caller's certificate must carry as a URI name.
	OperatorIdentity string
	// SocketPeerUID is the user that callers at a unix socket must run as.
	SocketPeerUID int
	// Callers are the ServiceAccounts whose token calls must carry; none means
	// that they need no token.
	Callers []types.NamespacedName
	// TokenAudience that callers' tokens must be for. Empty means the identity in
	// the certificate that the operator has issued to this provider.
	TokenAudience string
	// OwnIdentity lists the namespaces whose configs may use the provider's own
	// identity; "*" stands for all.
	OwnIdentity []string
	// MetricsListen is where /metrics, /healthz and /readyz are served in
	// plain HTTP; empty means nowhere.
	MetricsListen string
	// Kubeconfig is a file; empty means KUBECONFIG, then the Pod's own.
	Kubeconfig string
	// Reflection turns gRPC reflection on.
	Reflection bool
	// Grace is how long calls in flight may take at shutdown.
	Grace time.Duration
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level
	// LogFormat is json or text.
	LogFormat string

	// apiServer is the one that configs are read from.
	apiServer provider.APIServer
	// drain is the pause between the health answer NOT_SERVING and the closing
	// of connections.
	drain time.Duration
}

func (o *Options) register(flags *flag.FlagSet) {
	o.drain = drainPause
	flags.StringVar(&o.Listen, "listen", ":8443", "host:port to serve gRPC on, or unix:///path for a socket without TLS")
	flags.StringVar(&o.TLSDir, "tls-dir", "/var/run/secrets/external-secrets.io/tls", "folder with tls.crt, tls.key and ca.crt; reloaded when they change")
	flags.StringVar(&o.WorkloadAPI, "spiffe-endpoint-socket", "", "address of the SPIFFE Workload API, such as unix:///run/spire/agent.sock, from which certificates are taken in place of --tls-dir")
	flags.StringVar(&o.OperatorIdentity, "operator-identity", pb.OperatorIdentity, "URI name that a caller's certificate must carry; with --spiffe-endpoint-socket the operator's SPIFFE ID")
	flags.IntVar(&o.SocketPeerUID, "socket-peer-uid", os.Getuid(), "user that callers at a unix socket must run as; default this process's own")
	flags.Func("caller", "ServiceAccount, as namespace/name, whose token calls must carry; repeat for more; none means that calls need no token", func(s string) error {
		namespace, name, ok := strings.Cut(s, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("%q is not of the form namespace/name", s)
		}

		o.Callers = append(o.Callers, types.NamespacedName{Namespace: namespace, Name: name})

		return nil
	})
	flags.StringVar(&o.TokenAudience, "token-audience", "", "audience that callers' tokens must be for; default the identity in the certificate that the operator has issued to this provider")
	flags.Func("own-identity-namespace", "namespace whose configs may log in as the provider itself, such as with its Pod's ServiceAccount or a cloud's instance role; repeat for more, * for all; default none", func(s string) error {
		if s == "" {
			return errors.New("a namespace, or *")
		}

		o.OwnIdentity = append(o.OwnIdentity, s)

		return nil
	})
	flags.StringVar(&o.MetricsListen, "metrics-listen", ":8080", "host:port for /metrics, /healthz and /readyz; empty for none")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; default KUBECONFIG, then the Pod's own ServiceAccount")
	flags.BoolVar(&o.Reflection, "reflection", false, "serve gRPC reflection")
	flags.DurationVar(&o.Grace, "shutdown-grace", 20*time.Second, "how long calls in flight may take at shutdown")
	flags.TextVar(&o.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	flags.StringVar(&o.LogFormat, "log-format", "json", "json or text")
}

func (o *Options) validate() error {
	var errs []error

	if o.Listen == "" {
		errs = append(errs, errors.New("--listen: must not be empty"))
	}

	if path, ok := strings.CutPrefix(o.Listen, "unix://"); ok {
		if !strings.HasPrefix(path, "/") {
			errs = append(errs, fmt.Errorf("--listen: %q: a unix socket needs an absolute path, as in unix:///run/provider.sock", o.Listen))
		}

		if len(o.Callers) > 0 {
			errs = append(errs, errors.New("--caller: tokens travel over TLS only, and --listen is a unix socket"))
		}
	} else {
		errs = append(errs, o.validateTLS())
	}

	if o.MetricsListen != "" {
		if _, _, err := net.SplitHostPort(o.MetricsListen); err != nil {
			errs = append(errs, fmt.Errorf("--metrics-listen: %w", err))
		}
	}

	if o.Grace < 0 {
		errs = append(errs, errors.New("--shutdown-grace: must not be negative"))
	}

	if o.LogFormat != "json" && o.LogFormat != "text" {
		errs = append(errs, fmt.Errorf("--log-format: %q is neither json nor text", o.LogFormat))
	}

	return errors.Join(errs...)
}

// validateTLS checks what a network address needs.
func (o *Options) validateTLS() error {
	var errs []error

	if _, _, err := net.SplitHostPort(o.Listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen: %w", err))
	}

	if o.OperatorIdentity == "" {
		errs = append(errs, errors.New("--operator-identity: must not be empty"))
	}

	if o.WorkloadAPI == "" {
		if o.TLSDir == "" {
			errs = append(errs, errors.New("--tls-dir: needed to listen on a network address"))
		}

		return errors.Join(errs...)
	}

	if err := workloadapi.ValidateAddress(o.WorkloadAPI); err != nil {
		errs = append(errs, fmt.Errorf("--spiffe-endpoint-socket: %w", err))
	}

	if o.OperatorIdentity == pb.OperatorIdentity {
		errs = append(errs, errors.New("--operator-identity: with --spiffe-endpoint-socket it must be the operator's SPIFFE ID"))
	}

	if len(o.Callers) > 0 && o.TokenAudience == "" {
		errs = append(errs, errors.New("--token-audience: needed with --caller and --spiffe-endpoint-socket: no certificate of the operator's says it"))
	}

	return errors.Join(errs...)
}

func (o *Options) logger(w io.Writer) *slog.Logger {
	handler := &slog.HandlerOptions{Level: o.LogLevel}
	if o.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, handler))
	}

	return slog.New(slog.NewJSONHandler(w, handler))
}

// listener opens the listening address.
func (o *Options) listener() (net.Listener, error) {
	path, unix := strings.CutPrefix(o.Listen, "unix://")
	if !unix {
		l, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on --listen %s: %w", o.Listen, err)
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
		return nil, fmt.Errorf("cannot listen on --listen %s: %w", o.Listen, err)
	}

	// Who may connect is decided by the kernel's word for the peer; the mode
	// keeps others out earlier where it can.
	mode := os.FileMode(0o600)
	if o.SocketPeerUID != os.Getuid() {
		mode = 0o666
	}

	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot protect the socket: %w", err), l.Close())
	}

	return l, nil
}

func (o *Options) unix() bool { return strings.HasPrefix(o.Listen, "unix://") }
