package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"go.uber.org/zap/zapcore"

	"github.com/external-secrets/eso/core/internal/identity/address"
)

// namespaceFile holds the namespace of a Pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Options of the operator. Names and defaults are those of External Secrets
// Operator where it has the same flag.
type Options struct {
	// MetricsAddress serves Prometheus metrics; "0" turns them off.
	MetricsAddress string
	// LiveAddress serves /healthz and /readyz; "0" turns them off.
	LiveAddress string
	// Class of this operator.
	Class string
	// LeaderElection runs one of several replicas; the others wait.
	LeaderElection bool
	// LeaderElectionID names the Lease.
	LeaderElectionID string
	// Concurrent syncs of ExternalSecrets.
	Concurrent int
	// ClusterExternalSecrets are served.
	ClusterExternalSecrets bool
	// QPS and Burst of the Kubernetes client; a negative QPS means unlimited.
	QPS   float64
	Burst int
	// MemoryBytes bounds the values that stores returned last and that are kept in memory.
	MemoryBytes int
	// MaxFound is the largest number of secrets that one find may answer.
	MaxFound int
	// GenericTargets allows targets that are no Secrets.
	GenericTargets bool
	// LeftDelimiter and RightDelimiter of templates.
	LeftDelimiter, RightDelimiter string
	// StoreRefreshInterval of stores without spec.refreshInterval.
	StoreRefreshInterval time.Duration
	// Namespace of the operator, where its CA is kept.
	Namespace string
	// AllowedAddresses of providers that need no registration, in any of the
	// forms that spec.address of a SecretProvider may have.
	AllowedAddresses []string
	// SocketDir is the directory that contains providers' unix sockets.
	SocketDir string
	// SocketUID is the user that a provider behind a unix socket must run as.
	SocketUID int
	// WorkloadAPI is the address of the SPIFFE Workload API.
	WorkloadAPI string
	// CALifetime and CertificateLifetime of what the operator issues.
	CALifetime          time.Duration
	CertificateLifetime time.Duration
	// LogLevel is debug, info or error.
	LogLevel zapcore.Level
	// Dial connects to providers; nil dials the network. It has no flag: tests
	// use it for providers that listen in memory. Its argument is host:port, or unix:// and a path. What it returns is secured as
	// any connection is: by TLS with both sides' certificates, or, for a socket,
	// by the user of the peer, which only a *net.UnixConn has.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Register adds the flags to a set.
func (o *Options) Register(flags *flag.FlagSet) {
	flags.StringVar(&o.MetricsAddress, "metrics-addr", ":8080", "address of the metrics endpoint; 0 for none")
	flags.StringVar(&o.LiveAddress, "live-addr", ":8082", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&o.Class, "controller-class", "default", "class of this operator: stores whose spec.controller names another class are ignored")
	flags.BoolVar(&o.LeaderElection, "enable-leader-election", false, "elect one of several replicas as the leader; the others wait")
	flags.StringVar(&o.LeaderElectionID, "leader-election-id", "external-secrets-controller", "name of the Lease of the leader election")
	flags.IntVar(&o.Concurrent, "concurrent", 64, "ExternalSecrets that are synced concurrently")
	flags.BoolVar(&o.ClusterExternalSecrets, "enable-cluster-external-secret-reconciler", true, "serve ClusterExternalSecrets")
	flags.Float64Var(&o.QPS, "client-qps", -1, "requests per second to the API server; negative for no limit but the API server's own priority and fairness")
	flags.IntVar(&o.Burst, "client-burst", 100, "burst of requests to the API server where client-qps sets a limit")
	flags.IntVar(&o.MemoryBytes, "value-memory-bytes", 32<<20, "bytes of memory for the values that stores returned last: targets are repaired from them, and unchanged values are not sent again; 0 keeps none")
	flags.IntVar(&o.MaxFound, "find-limit", 10000, "largest number of secrets that one find may return; more are an error")
	flags.BoolVar(&o.GenericTargets, "unsafe-allow-generic-targets", false, "allow spec.target.manifest to write ConfigMaps and custom resources, which are not protected like Secrets; the operator's role must permit it")
	flags.StringVar(&o.LeftDelimiter, "template-left-delimiter", "{{", "left delimiter of templates")
	flags.StringVar(&o.RightDelimiter, "template-right-delimiter", "}}", "right delimiter of templates")
	flags.DurationVar(&o.StoreRefreshInterval, "store-requeue-interval", 5*time.Minute, "interval between validations of a store without spec.refreshInterval")
	flags.StringVar(&o.Namespace, "namespace", defaultNamespace(), "namespace of the operator, which holds its certificate authority; default POD_NAMESPACE, then the namespace of the Pod")
	flags.Func("allow-provider-address", "address of a provider that stores may use without a SecretProvider; may be repeated", func(s string) error {
		if _, err := address.Parse(s); err != nil {
			return err
		}

		o.AllowedAddresses = append(o.AllowedAddresses, s)

		return nil
	})
	flags.StringVar(&o.SocketDir, "provider-socket-dir", "", "directory that contains the unix sockets of providers; empty refuses unix sockets")
	flags.IntVar(&o.SocketUID, "provider-socket-uid", os.Getuid(), "user that the process behind a provider's unix socket must run as; default the operator's own")
	flags.StringVar(&o.WorkloadAPI, "spiffe-endpoint-socket", os.Getenv("SPIFFE_ENDPOINT_SOCKET"), "address of the SPIFFE Workload API, such as unix:///run/spire/agent.sock; default SPIFFE_ENDPOINT_SOCKET; empty for none")
	flags.DurationVar(&o.CALifetime, "ca-lifetime", 365*24*time.Hour, "lifetime of the certificate authority")
	flags.DurationVar(&o.CertificateLifetime, "certificate-lifetime", 24*time.Hour, "lifetime of the certificates that the certificate authority issues; they are renewed after two thirds of it")
	flags.TextVar(&o.LogLevel, "loglevel", zapcore.InfoLevel, "debug, info or error")
}

// Validate returns an error for each flag with an invalid value.
func (o *Options) Validate() error {
	var errs []error

	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}

	bad(o.Namespace == "", "--namespace: cannot determine the operator's namespace: set the flag or POD_NAMESPACE")
	bad(o.Concurrent < 1, "--concurrent: %d is less than 1", o.Concurrent)
	bad(o.QPS == 0, "--client-qps: 0 allows no requests; a negative value means no limit")
	bad(o.QPS > 0 && o.Burst < 1, "--client-burst: %d is less than 1", o.Burst)
	bad(o.MemoryBytes < 0, "--value-memory-bytes: %d is negative", o.MemoryBytes)
	bad(o.MaxFound < 1 || o.MaxFound > math.MaxInt32, "--find-limit: %d is not between 1 and %d", o.MaxFound, math.MaxInt32)
	bad(o.LeftDelimiter == "" || o.RightDelimiter == "" || o.LeftDelimiter == o.RightDelimiter,
		"--template-left-delimiter and --template-right-delimiter: %q and %q are empty or equal", o.LeftDelimiter, o.RightDelimiter)
	bad(o.StoreRefreshInterval <= 0, "--store-requeue-interval: %s is not positive", o.StoreRefreshInterval)
	bad(o.CertificateLifetime < time.Second, "--certificate-lifetime: %s is less than a second", o.CertificateLifetime)
	bad(o.CALifetime < 6*o.CertificateLifetime, "--ca-lifetime: %s is less than six certificate lifetimes of %s", o.CALifetime, o.CertificateLifetime)
	bad(o.SocketUID < 0, "--provider-socket-uid: %d is negative", o.SocketUID)

	if o.WorkloadAPI != "" {
		if err := workloadapi.ValidateAddress(o.WorkloadAPI); err != nil {
			errs = append(errs, fmt.Errorf("--spiffe-endpoint-socket: %w", err))
		}
	}

	bad(o.SocketDir != "" && !strings.HasPrefix(o.SocketDir, "/"), "--provider-socket-dir: %q is not absolute", o.SocketDir)

	return errors.Join(errs...)
}

func defaultNamespace() string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}

	data, err := os.ReadFile(namespaceFile)
	if err != nil {
		return ""
	}

	return strings.TrimSpace(string(data))
}
