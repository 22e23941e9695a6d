package kit

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// peerTimeout bounds the wait for a refusal.
const peerTimeout = 5 * time.Second

func tlsTests() []Test {
	network, minted := Needs{TLS: true}, Needs{TLS: true, Authority: true}

	return []Test{
		{ID: "tls.no-client-certificate", Why: "Otherwise every client that can connect to the port could read secrets.", Needs: network, Run: func(ctx context.Context, t *T) {
			t.stranger(ctx, "a caller without a certificate")
		}},
		{ID: "tls.foreign-authority", Why: "Any user can create a certificate that contains the operator's name.", Needs: network, Run: func(ctx context.Context, t *T) {
			t.impostor(ctx, "a caller whose certificate another authority has signed", t.run.foreign, leaf{name: "operator", uri: t.run.identity(), client: true})
		}},
		{ID: "tls.expired-certificate", Why: "A leaked certificate must become useless when it expires.", Needs: minted, Run: func(ctx context.Context, t *T) {
			t.impostor(ctx, "a caller whose certificate has expired", t.run.pki, leaf{name: "operator", uri: t.run.identity(), client: true, ended: true})
		}},
		{ID: "tls.another-provider", Why: "Certificates of other providers have the same authority and must not be accepted.", Needs: minted, Run: func(ctx context.Context, t *T) {
			t.impostor(ctx, "another provider", t.run.pki, leaf{name: "operator", uri: pb.ProviderIdentityPrefix + "another", client: true})
			t.impostor(ctx, "a caller whose certificate contains no identity", t.run.pki, leaf{name: "operator", client: true})
		}},
		{ID: "tls.version-1.2", Why: "The protocol requires TLS 1.3.", Needs: network, Run: func(ctx context.Context, t *T) { t.older(ctx, tls.VersionTLS12) }},
		{ID: "tls.version-1.1", Why: "Older versions of TLS are insecure.", Needs: network, Run: func(ctx context.Context, t *T) { t.older(ctx, tls.VersionTLS11) }},
		{ID: "tls.plain-text", Why: "Secrets are never sent without encryption.", Needs: network, Run: func(ctx context.Context, t *T) {
			t.unwelcome(ctx, "a caller in plain text", insecure.NewCredentials())
		}},
		{ID: "tls.operator-is-authenticated", Why: "The operator must be accepted, or the provider is unusable.", Needs: network, Run: operatorIsAuthenticated},
	}
}

// unwelcome checks that a caller gets no answer, and is refused by the
// transport or because of its identity.
func (t *T) unwelcome(ctx context.Context, what string, transport credentials.TransportCredentials) {
	conn, err := t.run.dialWith(transport)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(exempt(ctx), peerTimeout)
	defer cancel()

	_, err = pb.NewProviderInfoClient(conn).GetInfo(ctx, &pb.GetInfoRequest{})
	t.refused(what, err, codes.Unavailable, codes.Unauthenticated, codes.PermissionDenied)
}

// stranger is a caller with any certificates.
func (t *T) stranger(ctx context.Context, what string, certificates ...tls.Certificate) {
	t.unwelcome(ctx, what, credentials.NewTLS(t.run.clientTLS(certificates...)))
}

// impostor is a caller with a certificate that it should not have.
func (t *T) impostor(ctx context.Context, what string, signer *authority, l leaf) {
	made, err := signer.issue(l)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}

	certificate := made.certificate
	config := t.run.clientTLS()
	// Shown whatever authorities the provider asks for.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }

	t.unwelcome(ctx, what, credentials.NewTLS(config))
}

// older is the operator with an older TLS. Not gRPC's client, which would not
// speak it.
func (t *T) older(ctx context.Context, version uint16) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()

	config := t.run.clientTLS(*t.run.certificate)
	config.MinVersion, config.MaxVersion = version, version

	what := "a handshake with " + tls.VersionName(version)

	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.run.target.Address)
	if err != nil {
		t.Fatalf("%s: cannot connect", what)
	}
	defer conn.Close()

	if err := tls.Client(conn, config).HandshakeContext(ctx); err == nil {
		t.Errorf("%s: it was accepted", what)
	} else if ctx.Err() != nil {
		t.Errorf("%s: it was not refused within %s", what, peerTimeout)
	}
}

func operatorIsAuthenticated(ctx context.Context, t *T) {
	conn, err := t.run.dial()
	if err != nil {
		t.Fatalf("the operator: %v", err)
	}
	defer conn.Close()

	if _, err := pb.NewProviderInfoClient(conn).GetInfo(ctx, &pb.GetInfoRequest{}); err != nil {
		t.Errorf("the operator, after others were refused: %s", described(err))
	}
}
