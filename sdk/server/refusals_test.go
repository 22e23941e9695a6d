package server

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/pkitest"
)

// The log contains the reason of each refusal: the caller may only see a closed
// connection.
func TestWrongCallers(t *testing.T) {
	t.Parallel()

	operator := []string{pb.OperatorIdentity}
	foreign := pkitest.New(t, "foreign")

	for _, c := range []struct {
		why   string
		leaf  *pkitest.Leaf
		ca    *pkitest.CA
		limit uint16
		plain bool
		want  string
	}{
		{why: "no certificate", want: "client didn't provide a certificate"},
		{why: "an unknown authority", leaf: &pkitest.Leaf{URIs: operator}, ca: foreign, want: "certificate signed by unknown authority"},
		{why: "an expired certificate", leaf: &pkitest.Leaf{URIs: operator, NotAfter: time.Now().Add(-time.Minute)}, want: "certificate has expired"},
		{why: "a certificate of the future", leaf: &pkitest.Leaf{URIs: operator, NotBefore: time.Now().Add(time.Hour)}, want: "is not yet valid"},
		{why: "another provider's certificate", leaf: &pkitest.Leaf{CommonName: "vault", URIs: []string{pb.ProviderIdentityPrefix + "vault"}}, want: `client certificate of "vault" is not for "spiffe://external-secrets.io/operator"`},
		{why: "no identity at all", leaf: &pkitest.Leaf{CommonName: "stranger"}, want: `client certificate of "stranger" is not for`},
		{why: "a server's certificate", leaf: &pkitest.Leaf{URIs: operator, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, want: "incompatible key usage"},
		{why: "TLS 1.2", leaf: &pkitest.Leaf{URIs: operator}, limit: tls.VersionTLS12, want: "client offered only unsupported versions: [303"},
		{why: "TLS 1.1", leaf: &pkitest.Leaf{URIs: operator}, limit: tls.VersionTLS11, want: "client offered only unsupported versions: [302"},
		{why: "plain text", plain: true, want: "first record does not look like a TLS handshake"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			p := start(t, &backend{}, Options{MetricsListen: "127.0.0.1:0"})

			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()

			if c.plain {
				if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
					t.Fatal(err)
				}
			} else {
				config := &tls.Config{ServerName: "127.0.0.1", RootCAs: p.ca.Pool(), MinVersion: tls.VersionTLS10, MaxVersion: c.limit, NextProtos: []string{"h2"}} //nolint:gosec // it must be refused

				if c.leaf != nil {
					ca := c.ca
					if ca == nil {
						ca = p.ca
					}

					shown := ca.Issue(t, *c.leaf).Certificate
					// Go would keep back one that the server does not ask for.
					config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
				}

				secured := tls.Client(conn, config)
				// In TLS 1.3 the refusal may come after the client's part is over.
				if err := secured.HandshakeContext(t.Context()); err == nil {
					_ = secured.SetReadDeadline(time.Now().Add(patience))

					if _, err := secured.Read(make([]byte, 1)); err == nil {
						t.Error("the caller is accepted")
					}
				}
			}

			await(t, "the log says why", func() bool { return strings.Contains(p.log.field("refused a caller", "error"), c.want) })

			if !strings.Contains(p.metrics(), "externalsecrets_provider_refused_connections_total 1") {
				t.Error("the refusal is not counted")
			}
		})
	}
}

// A repeated refusal is logged at a limited rate.
func TestRepeatedRefusalsAreLoggedAtALimitedRate(t *testing.T) {
	t.Parallel()

	known, now := &refusalLog{last: map[string]time.Time{}}, time.Now()

	for _, c := range []struct {
		why, text string
		after     time.Duration
		want      bool
	}{
		{"the first", "a", 0, true},
		{"the same at once", "a", time.Second, false},
		{"another", "b", 0, true},
		{"the same later", "a", refusalPause, true},
		{"a clock that jumped back", "a", -time.Hour, true},
	} {
		now = now.Add(c.after)

		if got := known.due(c.text, now); got != c.want {
			t.Errorf("%s: %t", c.why, got)
		}
	}

	for i := range 2 * maxRefusals {
		known.due(string(rune('a'+i)), now)
	}

	if len(known.last) > maxRefusals {
		t.Errorf("%d refusals are kept", len(known.last))
	}
}
