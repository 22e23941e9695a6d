package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/installation"
)

// CrowdSize is how many ExternalSecrets share one key.
const CrowdSize = 100

// Crowd creates a hundred ExternalSecrets: each reads five properties, p1 to p5, of one key of the
// store "store", every ten seconds.
func (s *Suite) Crowd(t *testing.T, ns, key string) {
	t.Helper()

	for i := range CrowdSize {
		es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("crowd-%03d", i)}}
		es.Spec.RefreshInterval = &metav1.Duration{Duration: 10 * time.Second}
		es.Spec.SecretStoreRef = &esv1.StoreRef{APIVersion: v2alpha1.GroupVersion.String(), Kind: v2alpha1.SecretStoreKind, Name: "store"}

		for n := 1; n <= 5; n++ {
			property := fmt.Sprintf("p%d", n)
			es.Spec.Data = append(es.Spec.Data, esv1.Data{SecretKey: property, RemoteRef: esv1.RemoteRef{Key: key, Property: property}})
		}

		if err := s.Client.Create(t.Context(), es); err != nil {
			t.Fatal(err)
		}
	}
}

// CrowdSynced waits until the whole crowd was refreshed after a moment.
func (s *Suite) CrowdSynced(t *testing.T, ns string, after time.Time) {
	t.Helper()

	Within(t, time.Minute, func(ctx context.Context) error {
		var list esv1.ExternalSecretList
		if err := s.Client.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}

		late := 0

		for i := range list.Items {
			// Times in a status have whole seconds.
			if at := list.Items[i].Status.RefreshTime; at.IsZero() || at.Time.Before(after.Truncate(time.Second)) {
				late++
			}
		}

		if late > 0 || len(list.Items) == 0 {
			return fmt.Errorf("%d of %d ExternalSecrets are not refreshed", late, len(list.Items))
		}

		return nil
	})
}

// A Credential is one that stops to work, and what is expected of that.
type Credential struct {
	// Fail invalidates the credential, Restore makes it or another one valid.
	Fail, Restore func()
	// Calls counts those of the backend.
	Calls func() int
	// Texts are part of the condition, Secrets of nothing that is reported.
	Texts, Secrets []string
	// Budget is the allowed number of calls a minute during the failure.
	Budget int
}

// Suffers makes the credential of a crowd's store fail, and reports the
// condition, what it costs, and how long recovery takes. The crowd refreshes every
// ten seconds.
func (c Credential) Suffers(t *testing.T, s *Suite, ns string) {
	t.Helper()

	const look = 6 * time.Second

	c.Fail()

	message := s.Failing(t, ns, "crowd-000", c.Texts...)
	for _, secret := range c.Secrets {
		if strings.Contains(message, secret) {
			t.Error("the condition holds the credential")
		}
	}

	before := c.Calls()

	time.Sleep(look)

	perMinute := (c.Calls() - before) * int(time.Minute/look)
	if perMinute > c.Budget {
		t.Errorf("%d backend calls a minute while it lasts, more than %d", perMinute, c.Budget)
	}

	restored := time.Now()

	c.Restore()
	s.CrowdSynced(t, ns, restored.Add(time.Second))
	t.Logf("condition: %s", message)
	t.Logf("%d backend calls a minute while it lasts; all %d in sync again after %s", perMinute, CrowdSize, time.Since(restored).Round(100*time.Millisecond))
}

// BackendCalls counts the calls that a provider made of its backend, of the
// given operations.
func BackendCalls(t *testing.T, p *installation.Provider, operations ...string) int {
	t.Helper()

	families := Metrics(t, p.MetricsURL())
	count := 0

	for _, metric := range families["externalsecrets_provider_backend_calls_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "call" && slices.Contains(operations, label.GetValue()) {
				count += int(metric.GetCounter().GetValue())
			}
		}
	}

	return count
}
