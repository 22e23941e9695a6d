package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// Options of Serve. How callers are authenticated follows from the listener: by
// mutual TLS with TLSDir or WorkloadAPI on a network address, by SocketPeerUID on
// a unix socket, by PeerIdentity in memory.
type Options struct {
	// Client reads configs and the objects that they refer to, and reviews callers'
	// tokens. Required.
	Client client.Client
	// APIServer that Client calls, for stores that use the same one.
	APIServer provider.APIServer
	// TLSDir holds tls.crt, tls.key and ca.crt, which are reloaded when they
	// change.
	TLSDir string
	// WorkloadAPI is the address of the SPIFFE Workload API, from which
	// certificates are taken in place of TLSDir; empty means none.
	WorkloadAPI string
	// OperatorIdentity that callers must have, as a URI name in their certificate;
	// empty means the identity in certificates that the operator issues to itself.
	OperatorIdentity string
	// SocketPeerUID is the user that callers at a unix socket must run as.
	SocketPeerUID int
	// PeerIdentity is the identity of every caller that connects to an in-memory
	// listener, such as one of NewMemoryListener; it must be OperatorIdentity.
	// Only code of this process can connect to such a listener, and there is no
	// TLS. It is refused with a network or unix listener. Empty means that callers
	// show a certificate, in memory too.
	PeerIdentity string
	// Callers are the ServiceAccounts whose token calls must carry; none means
	// that calls need no token.
	Callers []types.NamespacedName
	// TokenAudience that callers' tokens must be for. Empty means the identity in
	// the certificate that the operator has issued to this provider.
	TokenAudience string
	// OwnIdentity lists the namespaces whose configs may use the provider's own
	// identity; "*" means all of them.
	OwnIdentity []string
	// MetricsListen is the host:port for /metrics, /healthz and /readyz in plain
	// HTTP; empty means that they are not served.
	MetricsListen string
	// Reflection serves gRPC reflection.
	Reflection bool
	// Grace is how long calls in flight may take at shutdown.
	Grace time.Duration
	// Log gets what happens, without keys and values; nil discards it.
	Log *slog.Logger

	// drain is the pause between the health status NOT_SERVING and the closing of
	// connections.
	drain time.Duration
}

func (o *Options) setDefaults() {
	if o.OperatorIdentity == "" {
		o.OperatorIdentity = pb.OperatorIdentity
	}

	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// validate checks the options against the provider and the listener that they are
// used with.
func (o *Options) validate(p provider.Provider, listener net.Listener) error {
	if p.Name == "" || len(p.Kinds) == 0 {
		return errors.New("the provider has no name or no kinds: it cannot be registered")
	}

	if o.Client == nil {
		return errors.New("Options.Client is nil: configs cannot be read")
	}

	network := listener.Addr().Network()

	switch {
	case o.PeerIdentity != "" && inMemory(listener):
		return nil
	case o.PeerIdentity != "":
		return fmt.Errorf("Options.PeerIdentity is for listeners in memory, and callers of a %s listener have to authenticate", network)
	case network == "unix" && len(o.Callers) > 0:
		return errors.New("Options.Callers: tokens travel over TLS only, and the listener is a unix socket")
	default:
		return nil
	}
}

// inMemory reports whether only code of this process can connect to a listener: a
// MemoryListener, or one whose network says so. Any other kind of listener may be
// reachable from elsewhere, such as a virtual socket.
func inMemory(listener net.Listener) bool {
	if listener.Addr() == nil {
		return false
	}

	switch listener.Addr().Network() {
	case memoryAddress{}.Network(), "bufconn":
		return true
	default:
		return false
	}
}
