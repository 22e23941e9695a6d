package counting

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/external-secrets/eso/e2e/load"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	corev1 "k8s.io/api/core/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/testkit/suite"
)

// Fifty namespaces cost one write each and a status; then nothing, however
// often they are looked at.
func TestClusterExternalSecretCosts(t *testing.T) {
	tidy(t)

	counted["clusterexternalsecrets"] = true

	// One that does not know the kinds yet asks for every owner.
	if err := load.AwaitCollector(t.Context(), product.Client); err != nil {
		t.Fatal(err)
	}

	const n = 50

	name := product.Namespace(t)

	var namespaces []string
	for range n {
		ns := product.Namespace(t)
		product.Label(t, ns, name)
		namespaces = append(namespaces, ns)
	}

	quiet(t)

	requests := apiRequests(t)
	began := time.Now()

	product.FanOut(t, name, suite.Selecting(name)+"  refreshTime: 300ms\n")
	product.Provisioned(t, name, "app", namespaces...)
	t.Logf("%d namespaces in %s", n, time.Since(began).Round(time.Millisecond))

	got := since(requests, apiRequests(t))
	if got["POST externalsecrets"] != n || got["PATCH clusterexternalsecrets/status"] != 1 {
		t.Errorf("requests: %v", got)
	}

	quiet(t)

	requests = apiRequests(t)

	time.Sleep(2 * time.Second)

	if got := ours(since(requests, apiRequests(t))); len(got) > 0 {
		t.Errorf("requests at rest: %v", got)
	}

	t.Run("a change costs a write per namespace", func(t *testing.T) {
		requests := apiRequests(t)

		product.Merge(t, &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}},
			map[string]any{"spec": map[string]any{"externalSecretMetadata": map[string]any{"labels": map[string]any{"round": "2"}}}})

		for _, ns := range namespaces {
			product.Child(t, ns, func(es *esv1.ExternalSecret) error {
				if es.Labels["round"] != "2" {
					return fmt.Errorf("labels of %s: %v", ns, es.Labels)
				}

				return nil
			})
		}

		// The first time that each is turned from created into applied.
		got := ours(since(requests, apiRequests(t)))
		delete(got, "GET externalsecrets") // the test's own

		if diff := cmp.Diff(map[string]int{
			"APPLY externalsecrets": n, "PATCH externalsecrets": n,
			// The test's own, and the status.
			"PATCH clusterexternalsecrets": 1, "PATCH clusterexternalsecrets/status": 1,
		}, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// ours leaves out what Kubernetes does in namespaces that other tests have
// left, and what the syncs themselves cost.
func ours(requests map[string]int) map[string]int {
	maps.DeleteFunc(requests, func(request string, _ int) bool {
		verb, resource, _ := strings.Cut(request, " ")

		return verb == "DELETE" || verb == "LIST" ||
			(resource != "externalsecrets" && !strings.HasPrefix(resource, "clusterexternalsecrets") && request != "PATCH namespaces")
	})

	return requests
}

// tidy waits at the end of a test until the namespaces that it deletes are gone:
// what Kubernetes does in so many would be counted by the tests that count. It
// must be called before they are made.
func tidy(t *testing.T) {
	t.Helper()

	t.Cleanup(func() {
		err := wait.PollUntilContextTimeout(context.Background(), 500*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			var list corev1.NamespaceList
			err := product.Client.List(ctx, &list)

			return err == nil && !slices.ContainsFunc(list.Items, func(ns corev1.Namespace) bool { return ns.DeletionTimestamp != nil }), nil
		})
		if err != nil {
			t.Errorf("namespaces are still being deleted: %v", err)
		}
	})
}
