package disruption

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/suite"
)

// load is how many ExternalSecrets refresh each second in the tests under
// load.
const load = 40

// underLoad makes ExternalSecrets that read both providers every second.
func underLoad(t *testing.T) (ns string) {
	t.Helper()

	ns = product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "s3cret"})
	product.Apply(t, ns, strings.ReplaceAll(suite.FakeStore, "name: store", "name: fake-store"))
	product.VaultStore(t, ns, product.Vault.RootToken())

	var manifests strings.Builder

	for i := range load {
		store, key := "store", ns+"/db"
		if i%2 == 1 {
			store, key = "fake-store", "db"
		}

		manifests.WriteString(strings.NewReplacer("refreshInterval: 1h", "refreshInterval: 1s", "key: db", "key: "+key).
			Replace(suite.SimpleES(fmt.Sprintf("app-%02d", i), store)))
	}

	product.Apply(t, ns, manifests.String())
	allSyncedSince(t, ns, time.Now().Add(-time.Minute))

	return ns
}

// allSyncedSince waits until every ExternalSecret has been synced after a
// moment and is Ready.
func allSyncedSince(t *testing.T, ns string, moment time.Time) {
	t.Helper()

	suite.Within(t, time.Minute, func(ctx context.Context) error {
		var list esv1.ExternalSecretList
		if err := product.Client.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}

		if len(list.Items) != load {
			return fmt.Errorf("%d ExternalSecrets", len(list.Items))
		}

		for _, es := range list.Items {
			if es.Status.RefreshTime.Before(&metav1.Time{Time: moment}) {
				return fmt.Errorf("%s was last synced at %s, before %s: %+v", es.Name, es.Status.RefreshTime, moment, es.Status.Conditions)
			}

			if len(es.Status.Conditions) == 0 || es.Status.Conditions[0].Status != metav1.ConditionTrue {
				return fmt.Errorf("%s is not Ready: %+v", es.Name, es.Status.Conditions)
			}
		}

		return nil
	})
}

// A provider that is killed and comes back costs no sync: what was due while
// it was away is done when it is back.
func TestProvidersThatAreKilled(t *testing.T) {
	ns := underLoad(t)

	for _, c := range []struct {
		name string
		away time.Duration
	}{
		{"back at once", 0},
		{"away for five seconds", 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			stop := product.WatchFailures(t, ns)

			for _, p := range []*installation.Provider{product.Providers["vault"], product.Providers["fake"]} {
				if err := p.Kill(); err != nil {
					t.Fatal(err)
				}
			}

			if c.away > 0 {
				// The operator has to live through the absence, not to end it.
				time.Sleep(c.away)
			}

			back := time.Now()

			for _, p := range []*installation.Provider{product.Providers["vault"], product.Providers["fake"]} {
				if err := p.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			allSyncedSince(t, ns, back)
			t.Logf("all %d synced %s after the providers were back", load, time.Since(back).Round(time.Millisecond*100))

			for message, n := range stop() {
				t.Logf("seen %d times: %s", n, message)

				if !strings.Contains(message, "does not answer") && !strings.Contains(message, "is not Ready") {
					t.Errorf("a message that does not say what happened: %s", message)
				}
			}
		})
	}

	t.Run("stopped in order, under load", func(t *testing.T) {
		for _, p := range []*installation.Provider{product.Providers["vault"], product.Providers["fake"]} {
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}

			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		allSyncedSince(t, ns, time.Now())
	})
}

// Certificates that are renewed every few seconds, the authority's too, fail
// no sync.
func TestCertificatesThatAreRenewedUnderLoad(t *testing.T) {
	ns := underLoad(t)
	serial := certificateSerials(t)

	if err := product.StopOperator(); err != nil {
		t.Fatal(err)
	}

	// The authority's Secret goes, so that the next operator makes one of the
	// shorter life; and with it, that a lost authority heals by itself.
	if err := product.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installation.OperatorNamespace, Name: "external-secrets-ca"}}); err != nil {
		t.Fatal(err)
	}

	if err := product.StartOperator(t.Context(), slices.Concat(product.OperatorFlags, []string{"--certificate-lifetime", "6s", "--ca-lifetime", "36s"})...); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { restoreOperator(t) })

	for _, p := range []*installation.Provider{product.Providers["vault"], product.Providers["fake"]} {
		if err := p.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	allSyncedSince(t, ns, time.Now())

	stop := product.WatchFailures(t, ns)
	reloads := tlsReloads(t)
	began := time.Now()

	overlap := 0

	// Long enough for the authority to be renewed once, at 24 s of its 36, and
	// to hand over to the next one.
	for time.Since(began) < 42*time.Second {
		allSyncedSince(t, ns, time.Now())

		overlap = max(overlap, authorities(t))
		servesCurrentCertificate(t, product.Providers["vault"])
		servesCurrentCertificate(t, product.Providers["fake"])
	}

	renewed := tlsReloads(t) - reloads
	t.Logf("in %s: certificates reloaded %d times, certificate seen anew: %t", time.Since(began).Round(time.Second), renewed, serial != certificateSerials(t))

	if renewed < 10 {
		t.Errorf("the providers reloaded their certificates %d times only", renewed)
	}

	for message, n := range stop() {
		t.Errorf("failed %d times: %s", n, message)
	}

	if overlap < 2 {
		t.Error("the bundle never held two authorities: there was no overlap")
	}

	// Connections that last are not shaken hands on again. New ones are.
	for _, p := range []*installation.Provider{product.Providers["vault"], product.Providers["fake"]} {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}

		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	allSyncedSince(t, ns, time.Now())
}

// servesCurrentCertificate looks at the certificate that a provider shows, and
// that it refuses callers without one.
func servesCurrentCertificate(t *testing.T, p *installation.Provider) {
	t.Helper()

	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}} //nolint:gosec // to look at it

	conn, err := dialer.DialContext(t.Context(), "tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]; time.Now().After(leaf.NotAfter) {
		t.Errorf("provider %s shows a certificate that ended at %s", p.Name, leaf.NotAfter)
	}

	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "tls:") {
		t.Errorf("provider %s accepts a caller without a certificate: %v", p.Name, err)
	}
}

// restoreOperator gives the other tests the operator that they expect.
func restoreOperator(t *testing.T) {
	t.Helper()

	if err := product.StopOperator(); err != nil {
		t.Error(err)
	}

	ctx := context.Background()
	if err := product.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installation.OperatorNamespace, Name: "external-secrets-ca"}}); err != nil {
		t.Error(err)
	}

	if err := product.StartOperator(ctx, product.OperatorFlags...); err != nil {
		t.Error(err)

		return
	}

	for _, p := range []*installation.Provider{product.Providers["vault"], product.Providers["fake"]} {
		if err := p.WaitReady(ctx); err != nil {
			t.Error(err)
		}
	}
}

func certificateSerials(t *testing.T) string {
	t.Helper()

	secret, err := product.Secret(t.Context(), "provider-vault", "vault-tls")
	if err != nil {
		t.Fatal(err)
	}

	if _, there := secret.Data["ca.key"]; there || len(secret.Data) != 3 {
		t.Errorf("the provider's Secret holds more than its certificate: %d keys", len(secret.Data))
	}

	return string(secret.Data["tls.crt"])
}

// authorities counts the certificates in the bundle that providers get.
func authorities(t *testing.T) int {
	t.Helper()

	secret, err := product.Secret(t.Context(), "provider-vault", "vault-tls")
	if err != nil {
		t.Fatal(err)
	}

	return strings.Count(string(secret.Data["ca.crt"]), "BEGIN CERTIFICATE")
}

// tlsReloads sums up the reloads that the providers count.
func tlsReloads(t *testing.T) int {
	t.Helper()

	sum := 0

	for _, p := range []*installation.Provider{product.Providers["vault"], product.Providers["fake"]} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.MetricsURL(), nil)
		if err != nil {
			t.Fatal(err)
		}

		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}

		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()

		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.SplitSeq(string(body), "\n") {
			if value, ok := strings.CutPrefix(line, "externalsecrets_provider_tls_reloads_total "); ok {
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}

				sum += n
			}
		}
	}

	return sum
}

// An operator that is killed goes on where it was: nothing that is not due is
// read again.
func TestOperatorThatIsKilled(t *testing.T) {
	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "s3cret"})
	product.VaultStore(t, ns, product.Vault.RootToken())
	product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("app", "store"), "key: db", "key: "+ns+"/db"))
	product.Synced(t, ns, "app")
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	path := "GET /v1/secret/data/" + ns + "/db"
	reads := product.Vault.Requests()[path]

	if err := product.KillOperator(); err != nil {
		t.Fatal(err)
	}

	if err := product.RestartOperator(t.Context()); err != nil {
		t.Fatal(err)
	}

	// The operator is back when it syncs something new.
	product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("second", "store"), "key: db", "key: "+ns+"/db"))
	product.Synced(t, ns, "second")

	if n := product.Vault.Requests()[path] - reads; n != 1 {
		t.Errorf("%d reads at Vault after the restart; one was for the new ExternalSecret", n)
	}
}
