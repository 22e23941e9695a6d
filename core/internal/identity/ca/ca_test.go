package ca

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// clock is a clock that tests set.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) forward(d time.Duration) { c.now = c.now.Add(d) }

func newAuthority(t *testing.T) (*Authority, *clock, client.Client) {
	t.Helper()

	c := fake.NewClientBuilder().Build()
	now := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}

	return New(c, Options{Namespace: "eso", Now: now.Now}), now, c
}

// verified reports whether a provider's certificate is accepted by the
// operator's pool, and the operator's by the provider's bundle.
func verified(t *testing.T, a *Authority, server *ServerCertificate, now time.Time) {
	t.Helper()

	own, pool, err := a.ClientTLS(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	leaf, err := parseBundle(server.Certificate)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := leaf[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: "vault.ns.svc", CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		t.Errorf("at %s the operator refuses the provider: %v", now, err)
	}

	bundle := x509.NewCertPool()
	bundle.AppendCertsFromPEM(server.CA)

	if _, err := own.Leaf.Verify(x509.VerifyOptions{Roots: bundle, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("at %s the provider refuses the operator: %v", now, err)
	}
}

func TestCertificatesArePurposeBound(t *testing.T) {
	t.Parallel()

	a, now, c := newAuthority(t)

	server, err := a.IssueServer(t.Context(), "vault", []string{"vault.ns.svc", "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}

	verified(t, a, server, now.Now())

	own, _, err := a.ClientTLS(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	leaf, err := parseBundle(server.Certificate)
	if err != nil {
		t.Fatal(err)
	}

	if got := own.Leaf.URIs[0].String(); got != pb.OperatorIdentity {
		t.Errorf("the operator is %q", got)
	}

	if got := leaf[0].URIs[0].String(); got != pb.ProviderIdentityPrefix+"vault" {
		t.Errorf("the provider is %q", got)
	}

	if len(leaf[0].ExtKeyUsage) != 1 || leaf[0].ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth || leaf[0].IsCA {
		t.Error("a provider's certificate must serve and do nothing else, or a provider could call another")
	}

	if bytes.Contains(server.CA, []byte("PRIVATE")) || bytes.Contains(server.Certificate, []byte("PRIVATE")) {
		t.Error("what a provider gets holds a key that is not its own")
	}

	if life := server.NotAfter.Sub(now.Now()); life != 24*time.Hour {
		t.Errorf("the certificate lives for %s", life)
	}

	if rest := server.RenewAt.Sub(now.Now()); rest != 16*time.Hour {
		t.Errorf("the certificate is renewed after %s, not two thirds of its life", rest)
	}

	var list corev1.SecretList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Namespace != "eso" {
		t.Errorf("the authority stands in more than its own Secret: %v, %v", list.Items, err)
	}
}

// With hourly certificates over three years, operator and providers always accept
// each other, although providers load a new certificate only when theirs is due
// or the bundle changes.
func TestAuthorityRotatesWithoutAGap(t *testing.T) {
	t.Parallel()

	a, now, _ := newAuthority(t)

	server, err := a.IssueServer(t.Context(), "vault", []string{"vault.ns.svc"})
	if err != nil {
		t.Fatal(err)
	}

	bundles := map[string]bool{}

	for end := now.Now().Add(3 * 365 * 24 * time.Hour); now.Now().Before(end); now.forward(6 * time.Hour) {
		if err := a.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}

		// A provider that has not been handed the new bundle yet still works.
		verified(t, a, server, now.Now())

		fingerprint, err := a.Fingerprint(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		bundles[fingerprint] = true

		if fingerprint != server.Fingerprint || !now.Now().Before(server.RenewAt) {
			if server, err = a.IssueServer(t.Context(), "vault", []string{"vault.ns.svc"}); err != nil {
				t.Fatal(err)
			}
		}

		verified(t, a, server, now.Now())

		if t.Failed() {
			return
		}
	}

	if len(bundles) < 8 {
		t.Errorf("the authority changed %d times in three years", len(bundles))
	}
}

func TestClockThatJumps(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why  string
		jump time.Duration
	}{
		{"an hour ahead", time.Hour},
		{"past the end of every leaf", 48 * time.Hour},
		{"past the end of the authority", 2 * 365 * 24 * time.Hour},
		{"an hour back", -time.Hour},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			a, now, _ := newAuthority(t)
			if err := a.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}

			if _, _, err := a.ClientTLS(t.Context()); err != nil {
				t.Fatal(err)
			}

			now.forward(24 * time.Hour)
			now.forward(c.jump)

			if err := a.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}

			server, err := a.IssueServer(t.Context(), "vault", []string{"vault.ns.svc"})
			if err != nil {
				t.Fatal(err)
			}

			verified(t, a, server, now.Now())
		})
	}
}

func TestAuthorityThatIsLostOrBroken(t *testing.T) {
	t.Parallel()

	t.Run("a lost CA is created again, and the operator's certificate with it", func(t *testing.T) {
		t.Parallel()

		a, now, c := newAuthority(t)
		if _, _, err := a.ClientTLS(t.Context()); err != nil {
			t.Fatal(err)
		}

		<-a.Changed()

		if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "eso", Name: "external-secrets-ca"}}); err != nil {
			t.Fatal(err)
		}

		if err := a.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}

		select {
		case <-a.Changed():
		default:
			t.Error("the change is not notified, and certificates are not issued again")
		}

		server, err := a.IssueServer(t.Context(), "vault", []string{"vault.ns.svc"})
		if err != nil {
			t.Fatal(err)
		}

		verified(t, a, server, now.Now())
	})

	t.Run("a broken one is not replaced silently", func(t *testing.T) {
		t.Parallel()

		a, _, c := newAuthority(t)
		if err := c.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "eso", Name: "external-secrets-ca"},
			Data:       map[string][]byte{"active.crt": []byte("nonsense")},
		}); err != nil {
			t.Fatal(err)
		}

		err := a.Ensure(t.Context())
		if err == nil || !strings.Contains(err.Error(), "eso/external-secrets-ca") || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("err = %v", err)
		}
	})

	t.Run("a restart goes on with the same one", func(t *testing.T) {
		t.Parallel()

		a, now, c := newAuthority(t)

		was, err := a.Fingerprint(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		again := New(c, Options{Namespace: "eso", Now: now.Now})

		is, err := again.Fingerprint(t.Context())
		if err != nil || is != was {
			t.Errorf("%s became %s, %v", was, is, err)
		}
	})
}
