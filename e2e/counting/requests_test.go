package counting

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"
)

// counted are the resources that a sync could touch.
var counted = map[string]bool{
	"externalsecrets": true, "secrets": true, "events": true, "secretstores": true, "clustersecretstores": true,
	"secretproviders": true, "vaults": true, "namespaces": true, "serviceaccounts": true, "configmaps": true,
}

// apiRequests reads the API server's own count of requests, as "VERB
// resource[/subresource]", for the counted resources. Watches, which last,
// are left out.
func apiRequests(t *testing.T) map[string]int {
	t.Helper()

	raw, err := product.Clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	parser := expfmt.NewTextParser(model.LegacyValidation)

	families, err := parser.TextToMetricFamilies(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}

	counts := map[string]int{}

	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}

		if !counted[labels["resource"]] || labels["verb"] == "WATCH" {
			continue
		}

		// quiet itself lists them.
		if labels["verb"] == "LIST" && labels["resource"] == "namespaces" {
			continue
		}

		name := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			name += "/" + labels["subresource"]
		}

		counts[name] += int(metric.GetCounter().GetValue())
	}

	return counts
}

// since gives what was counted between two looks.
func since(before, after map[string]int) map[string]int {
	grown := map[string]int{}

	for name, n := range after {
		if n > before[name] {
			grown[name] = n - before[name]
		}
	}

	return grown
}

// quiet waits until no counted request is made for a while, so that what
// comes next is counted alone.
func quiet(t *testing.T) {
	t.Helper()

	last, calm := apiRequests(t), time.Now()

	suite.Within(t, 2*time.Minute, func(ctx context.Context) error {
		var namespaces corev1.NamespaceList
		if err := product.Client.List(ctx, &namespaces); err != nil {
			return err
		}

		// Those of earlier tests are emptied in their own time.
		for _, namespace := range namespaces.Items {
			if namespace.DeletionTimestamp != nil {
				calm = time.Now()

				return fmt.Errorf("namespace %s is still going", namespace.Name)
			}
		}

		now := apiRequests(t)
		if grown := since(last, now); len(grown) > 0 {
			last, calm = now, time.Now()

			return fmt.Errorf("still busy: %v", grown)
		}

		if time.Since(calm) < 1500*time.Millisecond {
			return fmt.Errorf("quiet for %s only", time.Since(calm))
		}

		return nil
	})
}

// The cost of a sync is counted in requests to the API server and to Vault.
func TestWhatASyncCosts(t *testing.T) {
	ns := product.Namespace(t)
	properties := map[string]any{}

	var data strings.Builder

	for i := range 10 {
		properties[fmt.Sprintf("p%d", i)] = fmt.Sprintf("value-%d", i)
		fmt.Fprintf(&data, "  - {secretKey: p%d, remoteRef: {key: %s/ten, property: p%d}}\n", i, ns, i)
	}

	product.WriteVault(t, "secret/"+ns+"/ten", properties)
	product.VaultStore(t, ns, product.Vault.RootToken())
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	manifest := `
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: app
spec:
  refreshInterval: 6s
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  data:
` + data.String()

	path := "GET /v1/secret/data/" + ns + "/ten"
	want := map[string]int{"APPLY secrets": 1, "PATCH externalsecrets/status": 1, "POST events": 1}

	var name, diff string

	// Once a minute the operator looks at the certificate of each provider. What a
	// sync costs shows in every one of them.
	for i := range 3 {
		name = fmt.Sprintf("app-%d", i)

		quiet(t)

		// kubectl's own requests are taken off: it reads and applies the object.
		requests, reads := apiRequests(t), product.Vault.Requests()

		product.Apply(t, ns, strings.ReplaceAll(manifest, "name: app", "name: "+name))
		product.Synced(t, ns, name)

		var got map[string]int

		// The event, the last of them, follows a moment later.
		suite.Eventually(t, func(context.Context) error {
			if got = since(requests, apiRequests(t)); got["POST events"] == 0 {
				return errors.New("no event yet")
			}

			return nil
		})

		// Those of the test itself.
		delete(got, "GET externalsecrets")
		delete(got, "APPLY externalsecrets")

		if n := product.Vault.Requests()[path] - reads[path]; n != 1 {
			t.Errorf("ten properties of one key cost %d reads at Vault", n)
		}

		if diff = cmp.Diff(want, got); diff == "" {
			break
		}

		// One that refreshes would be counted with the next.
		product.DeleteES(t, ns, name)
	}

	if diff != "" {
		t.Fatalf("requests of a first sync (-want +got):\n%s", diff)
	}

	t.Run("a refresh that finds nothing new writes the status only", func(t *testing.T) {
		var diff string

		// Once a minute the operator looks at the certificate of each provider. What
		// a refresh costs shows in every one of them.
		for range 3 {
			before := product.Synced(t, ns, name).Status.RefreshTime
			requests, reads := apiRequests(t), product.Vault.Requests()

			suite.Eventually(t, func(ctx context.Context) error {
				es, _, err := product.ExternalSecret(ctx, ns, name)
				if err == nil && !es.Status.RefreshTime.After(before.Time) {
					err = errors.New("not refreshed yet")
				}

				return err
			})

			got := since(requests, apiRequests(t))
			delete(got, "GET externalsecrets")

			if n := product.Vault.Requests()[path] - reads[path]; n != 1 {
				t.Errorf("a refresh cost %d reads at Vault", n)
			}

			if diff = cmp.Diff(map[string]int{"PATCH externalsecrets/status": 1}, got); diff == "" {
				return
			}
		}

		t.Errorf("requests of a refresh (-want +got):\n%s", diff)
	})
}
