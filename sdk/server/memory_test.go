package server

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/pkitest"
	"github.com/external-secrets/eso/sdk/provider"
)

// dialer is what a listener in memory offers to clients.
type dialer interface {
	net.Listener
	DialContext(ctx context.Context) (net.Conn, error)
}

// serveInMemory serves until the test ends and returns a client's connection.
func serveInMemory(t *testing.T, listener dialer, p provider.Provider, options Options, transport credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()

	options.Client = cluster()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)

	go func() { done <- Serve(ctx, listener, p, options) }()

	conn, err := grpc.NewClient("passthrough:///provider",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = conn.Close()

		cancel()

		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve returned %v", err)
			}
		case <-time.After(patience):
			t.Error("Serve did not return")
		}
	})

	return conn
}

// The same provider is called through memory and through a network, with the same
// checks.
func TestServesInMemory(t *testing.T) {
	t.Parallel()

	inMemory := Options{PeerIdentity: pb.OperatorIdentity}

	for _, test := range []struct {
		name, why string
		listener  dialer
		options   Options
		change    func(*pb.GetSecretsRequest)
		want      codes.Code
	}{
		{name: "own listener", why: "a read is answered", listener: NewMemoryListener(), options: inMemory},
		{name: "bufconn", why: "any listener in memory will do", listener: bufconn.Listen(1 << 16), options: inMemory},
		{
			name: "foreign namespace", why: "the call context is checked as on a network", listener: NewMemoryListener(), options: inMemory,
			change: func(r *pb.GetSecretsRequest) { r.Context.SourceNamespace = "team-b" }, want: codes.PermissionDenied,
		},
		{
			name: "without a token", why: "tokens are verified as on a network", listener: NewMemoryListener(),
			options: Options{PeerIdentity: pb.OperatorIdentity, Callers: []types.NamespacedName{{Namespace: "eso", Name: "operator"}}, TokenAudience: "audience"},
			want:    codes.Unauthenticated,
		},
		{
			name: "another identity", why: "only the operator may call, in memory too", listener: NewMemoryListener(),
			options: Options{PeerIdentity: pb.ProviderIdentityPrefix + "other"}, want: codes.Unavailable,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			b := &backend{read: answer(func(r provider.Read) provider.Result { return provider.Result{Value: []byte("value of " + r.Key)} })}
			conn := serveInMemory(t, test.listener, b.provider(), test.options, insecure.NewCredentials())

			request := &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{read("a")}}
			if test.change != nil {
				test.change(request)
			}

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()

			response, err := pb.NewSecretStoreClient(conn).GetSecrets(ctx, request)
			if status.Code(err) != test.want {
				t.Fatalf("%s: %v", test.why, err)
			}

			if err == nil && string(response.GetResults()[0].GetValue()) != "value of a" {
				t.Errorf("%s: %v", test.why, response)
			}
		})
	}
}

// Without PeerIdentity a listener in memory has the TLS of a network.
func TestServesTLSInMemory(t *testing.T) {
	t.Parallel()

	ca, dir := pkitest.New(t, "ca"), t.TempDir()
	pkitest.Write(t, dir, ca.Issue(t, pkitest.Leaf{}), ca.PEM)

	for identity, want := range map[string]codes.Code{pb.OperatorIdentity: codes.OK, pb.ProviderIdentityPrefix + "other": codes.Unavailable} {
		transport := credentials.NewTLS(clientTLS(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{identity}})))
		conn := serveInMemory(t, NewMemoryListener(), (&backend{}).provider(), Options{TLSDir: dir}, transport)

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := pb.NewProviderInfoClient(conn).GetInfo(ctx, &pb.GetInfoRequest{}); status.Code(err) != want {
			t.Errorf("a caller with the certificate of %s: %v", identity, err)
		}

		cancel()
	}
}

// Options that would leave callers unauthenticated, or that cannot work, are
// refused before anything is served.
func TestServeRefusesOptions(t *testing.T) {
	t.Parallel()

	memory := func(*testing.T) net.Listener { return NewMemoryListener() }
	listen := func(network, address string) func(*testing.T) net.Listener {
		return func(t *testing.T) net.Listener {
			t.Helper()

			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}

			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}

			return l
		}
	}

	for _, test := range []struct {
		name, why string
		listener  func(*testing.T) net.Listener
		options   Options
		want      string
	}{
		{name: "peer identity on a network", why: "every client that can connect would be the operator", listener: listen("tcp", "127.0.0.1:0"), options: Options{Client: cluster(), PeerIdentity: pb.OperatorIdentity}, want: "callers of a tcp listener have to authenticate"},
		{name: "peer identity on a socket", why: "every user of the machine would be the operator", listener: listen("unix", ""), options: Options{Client: cluster(), PeerIdentity: pb.OperatorIdentity}, want: "callers of a unix listener have to authenticate"},
		{name: "peer identity on a network of another kind", why: "virtual machines connect to a virtual socket", listener: func(*testing.T) net.Listener { return virtual{NewMemoryListener()} }, options: Options{Client: cluster(), PeerIdentity: pb.OperatorIdentity}, want: "callers of a vsock listener have to authenticate"},
		{name: "tokens on a socket", why: "tokens travel over TLS only", listener: listen("unix", ""), options: Options{Client: cluster(), Callers: []types.NamespacedName{{Namespace: "a", Name: "b"}}}, want: "tokens travel over TLS only"},
		{name: "no client", why: "no config could be read", listener: memory, options: Options{PeerIdentity: pb.OperatorIdentity}, want: "Options.Client is nil"},
		{name: "neither TLS nor identity", why: "nothing would authenticate callers", listener: memory, options: Options{Client: cluster()}, want: "cannot read TLS file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			listener := test.listener(t)
			if err := Serve(t.Context(), listener, (&backend{}).provider(), test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", test.why, err)
			}

			if _, err := listener.Accept(); err == nil {
				t.Errorf("%s: the listener is open", test.name)
			}
		})
	}
}

// virtual is a listener of a network that package net does not know.
type virtual struct{ *MemoryListener }

func (virtual) Addr() net.Addr { return virtualAddress{} }

type virtualAddress struct{}

func (virtualAddress) Network() string { return "vsock" }

func (virtualAddress) String() string { return "host(2):1024" }
