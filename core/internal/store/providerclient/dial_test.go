package providerclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/identity/mtls"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/store"
)

// A provider in memory is authenticated as one on the network is.
func TestDialInMemory(t *testing.T) {
	t.Parallel()

	authority := newCA(t)

	for _, c := range []struct {
		why     string
		edit    func(*x509.Certificate)
		trusted bool
	}{
		{"the provider that the endpoint names", func(*x509.Certificate) {}, true},
		{"a certificate of another identity is refused", func(cert *x509.Certificate) {
			cert.URIs = []*url.URL{{Scheme: "spiffe", Host: "external-secrets.io", Path: "/provider/other"}}
		}, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			listener := bufconn.Listen(1 << 20)
			server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
				Certificates: []tls.Certificate{*authority.issue(t, c.edit)}, ClientAuth: tls.RequireAndVerifyClientCert,
				ClientCAs: authority.pool(), NextProtos: []string{"h2"},
			})))

			pb.RegisterSecretStoreServer(server, &provider{read: func(*pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
				return &pb.GetSecretsResponse{Results: []*pb.SecretResult{value("0", "in memory")}}, nil
			}})

			go func() { _ = server.Serve(listener) }()
			t.Cleanup(server.Stop)

			parsed, err := address.Parse("vault.memory:1")
			if err != nil {
				t.Fatal(err)
			}

			pool := NewPool(Options{
				Credentials: mtls.NewSource(mtls.Options{Own: own{authority.issue(t, func(*x509.Certificate) {}), authority.pool()}}),
				Dial: func(ctx context.Context, address string) (net.Conn, error) {
					if address != "vault.memory:1" {
						t.Errorf("the dialer is given %q", address)
					}

					return listener.DialContext(ctx)
				},
			})
			t.Cleanup(pool.Close)

			client, err := pool.Client(Endpoint{Address: parsed, Trust: mtls.Trust{ServerName: "127.0.0.1", Identity: identity}}, token.Identity{})
			if err != nil {
				t.Fatal(err)
			}

			results, err := client.Read(t.Context(), &pb.CallContext{}, []Read{{Read: store.Read{Key: "k"}}})

			switch {
			case c.trusted && (err != nil || string(results[0].Value) != "in memory"):
				t.Errorf("%v, %v", results, err)
			case !c.trusted && err == nil:
				t.Error("the identity is not checked")
			}
		})
	}
}
