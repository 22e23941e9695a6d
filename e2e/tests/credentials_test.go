package tests

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/installation"
)

// crowd is how many ExternalSecrets share one key in these tests.
const crowd = 100

// A hundred users of one secret, and credentials that end: each is told, costs
// little while it lasts, and is replaced by itself when there is another. Those
// of different backends at the same time: most of it is waiting.
func TestCredentialsThatEnd(t *testing.T) { //nolint:tparallel // the tests after it count requests
	for name, end := range map[string]func(*testing.T){
		"vault": vaultCredentials, "kubernetes": kubernetesCredentials, "aws": awsCredentialsThatEnd, "webhook": webhookCredentialsThatEnd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end(t)
		})
	}
}

// gather makes the crowd: each reads five properties, p1 to p5, of one key of the
// store "store", every ten seconds.
func gather(t *testing.T, ns, key string) {
	t.Helper()

	for i := range crowd {
		es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("crowd-%03d", i)}}
		es.Spec.RefreshInterval = &metav1.Duration{Duration: 10 * time.Second}
		es.Spec.SecretStoreRef = &esv1.StoreRef{APIVersion: v2alpha1.GroupVersion.String(), Kind: v2alpha1.SecretStoreKind, Name: "store"}

		for n := 1; n <= 5; n++ {
			property := fmt.Sprintf("p%d", n)
			es.Spec.Data = append(es.Spec.Data, esv1.Data{SecretKey: property, RemoteRef: esv1.RemoteRef{Key: key, Property: property}})
		}

		if err := product.Client.Create(t.Context(), es); err != nil {
			t.Fatal(err)
		}
	}
}

// inSync waits until the whole crowd was refreshed after a moment.
func inSync(t *testing.T, ns string, after time.Time) {
	t.Helper()

	within(t, time.Minute, func(ctx context.Context) error {
		var list esv1.ExternalSecretList
		if err := product.Client.List(ctx, &list, client.InNamespace(ns)); err != nil {
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

// credential is one that stops to work, and what is expected of that.
type credential struct {
	// fail makes the credential useless, mend makes it or another one work.
	fail, mend func()
	// calls counts those of the backend.
	calls func() int
	// texts stand in the condition, secrets in nothing that is told.
	texts, secrets []string
	// budget is how many calls a minute may be made while it lasts.
	budget int
}

// suffers makes the credential of a crowd's store fail, and reports what is
// told, what it costs, and how long recovery takes. The crowd refreshes every
// ten seconds.
func (c credential) suffers(t *testing.T, ns string) {
	t.Helper()

	const look = 15 * time.Second

	c.fail()

	message := failing(t, ns, "crowd-000", c.texts...)
	for _, secret := range c.secrets {
		if strings.Contains(message, secret) {
			t.Error("the condition holds the credential")
		}
	}

	before := c.calls()

	time.Sleep(look)

	perMinute := (c.calls() - before) * int(time.Minute/look)
	if perMinute > c.budget {
		t.Errorf("%d backend calls a minute while it lasts, more than %d", perMinute, c.budget)
	}

	mended := time.Now()

	c.mend()
	inSync(t, ns, mended.Add(time.Second))
	t.Logf("condition: %s", message)
	t.Logf("%d backend calls a minute while it lasts; all %d in sync again after %s", perMinute, crowd, time.Since(mended).Round(100*time.Millisecond))
}

// backendCalls counts the calls that a provider made of its backend, of the
// given operations.
func backendCalls(t *testing.T, p *installation.Provider, operations ...string) int {
	t.Helper()

	response, err := http.Get(p.MetricsURL()) //nolint:noctx // it is on loopback
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()

	parser := expfmt.NewTextParser(model.LegacyValidation)

	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}

	calls := 0

	for _, metric := range families["externalsecrets_provider_backend_calls_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "call" && slices.Contains(operations, label.GetValue()) {
				calls += int(metric.GetCounter().GetValue())
			}
		}
	}

	return calls
}
