package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// What an administrator adds where targets that are no Secrets are wanted, and
// a kind to try them with.
const genericTargets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties:
              mode: {type: string, default: usual}
              flag: {type: boolean}
              flags: {type: array, items: {type: boolean}}
              ports:
                type: array
                items:
                  type: object
                  properties:
                    port: {type: integer}
                    protocol: {type: string, default: TCP}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: generic-targets
  labels: {external-secrets.io/aggregate-to-operator: "true"}
rules:
- apiGroups: ["", example.com]
  resources: [configmaps, things]
  verbs: [get, list, watch, create, patch, delete]
`

func configMap(ctx context.Context, ns, name string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}

	return object, product.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, object)
}

func TestManifestTargets(t *testing.T) {
	ns := newNamespace(t)
	apply(t, ns, genericTargets)

	if out, err := product.Kubectl(t.Context(), "", "wait", "--for=condition=Established", "--timeout=60s", "crd/things.example.com"); err != nil {
		t.Fatal(out, err)
	}

	apply(t, ns, fakeWith("  - {key: db, value: '{\"a\":\"1\",\"b\":\"2\"}'}\n"))

	t.Run("a ConfigMap is made, repaired, renamed and goes with its owner", func(t *testing.T) {
		manifest := func(name string) string {
			return es("map", "  target: {name: "+name+", manifest: {apiVersion: v1, kind: ConfigMap}}\n  dataFrom: [{extract: {key: db}}]\n")
		}

		apply(t, ns, manifest("made"))
		reasonIs(t, ns, "map", esv1.ReasonResourceSynced, "resource synced")

		made, err := configMap(t.Context(), ns, "made")
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, made.Data); diff != "" || len(made.OwnerReferences) != 1 {
			t.Errorf("owners %v, data (-want +got):\n%s", made.OwnerReferences, diff)
		}

		made.Data["a"] = "changed"
		if err := product.Client.Update(t.Context(), made); err != nil {
			t.Fatal(err)
		}

		eventually(t, func(ctx context.Context) error {
			if made, err = configMap(ctx, ns, "made"); err != nil || made.Data["a"] != "1" {
				return fmt.Errorf("it is not repaired: %v: %w", made.Data, err)
			}

			return nil
		})

		apply(t, ns, manifest("renamed"))
		eventually(t, func(ctx context.Context) error {
			_, err := configMap(ctx, ns, "renamed")
			if _, old := configMap(ctx, ns, "made"); !apierrors.IsNotFound(old) {
				return errors.Join(err, errors.New("the old one is still there"))
			}

			return err
		})

		deleteES(t, ns, "map")
		eventually(t, func(ctx context.Context) error {
			if _, err := configMap(ctx, ns, "renamed"); !apierrors.IsNotFound(err) {
				return errors.Join(err, errors.New("it is still there"))
			}

			return nil
		})
	})

	t.Run("a custom resource is filled by paths", func(t *testing.T) {
		apply(t, ns, es("thing", `  target:
    manifest: {apiVersion: example.com/v1, kind: Thing}
    template:
      metadata: {labels: {a: "{{ .a }}"}}
      templateFrom:
      - literal: "{host: db, port: {{ .b }}}"
        target: spec.hosts[0]
      - literal: "[x, y]"
        target: spec.list
      - literal: "[{port: 80}]"
        target: spec.ports
      - literal: "{nothing: null, something: 1}"
        target: spec.sparse
  dataFrom: [{extract: {key: db}}]
`))
		reasonIs(t, ns, "thing", esv1.ReasonResourceSynced)

		thing := &unstructured.Unstructured{}
		thing.SetAPIVersion("example.com/v1")
		thing.SetKind("Thing")

		if err := product.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "thing"}, thing); err != nil {
			t.Fatal(err)
		}

		// What the API server adds is no drift.
		want := map[string]any{
			"hosts": []any{map[string]any{"host": "db", "port": int64(2)}}, "list": []any{"x", "y"}, "mode": "usual",
			"ports": []any{map[string]any{"port": int64(80), "protocol": "TCP"}}, "sparse": map[string]any{"something": int64(1)},
		}
		if _, there := thing.Object["spec"].(map[string]any)["sparse"].(map[string]any)["nothing"]; there {
			want["sparse"].(map[string]any)["nothing"] = nil
		}

		if diff := cmp.Diff(want, thing.Object["spec"]); diff != "" || thing.GetLabels()["a"] != "1" {
			t.Errorf("labels %v, spec (-want +got):\n%s", thing.GetLabels(), diff)
		}

		before := thing.GetResourceVersion()

		refreshedTwice(t, ns, "thing")

		if err := product.Client.Get(t.Context(), client.ObjectKeyFromObject(thing), thing); err != nil || thing.GetResourceVersion() != before {
			t.Errorf("it was written while nothing changed: %v", err)
		}

		// What somebody changes inside of a list is drift all the same.
		patch := []byte(`{"spec":{"ports":[{"port":80,"protocol":"UDP"}]}}`)
		if err := product.Client.Patch(t.Context(), thing, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("somebody")); err != nil {
			t.Fatal(err)
		}

		eventually(t, func(ctx context.Context) error {
			err := product.Client.Get(ctx, client.ObjectKeyFromObject(thing), thing)
			if diff := cmp.Diff(want, thing.Object["spec"]); err == nil && diff != "" {
				err = fmt.Errorf("it is not repaired (-want +got):\n%s", diff)
			}

			return err
		})
	})

	t.Run("what the API server fills in costs no repairs", func(t *testing.T) {
		before := repairs(t)

		thing := strings.Replace(es("filled", `  target:
    manifest: {apiVersion: example.com/v1, kind: Thing}
    template:
      templateFrom: [{literal: "[{port: 80}]", target: spec.ports}]
  dataFrom: [{extract: {key: db}}]
`), "refreshInterval: 1s", "refreshInterval: 1h", 1)
		apply(t, ns, thing)
		synced(t, ns, "filled")
		time.Sleep(4 * time.Second)

		if n := repairs(t) - before; n > 0 {
			t.Errorf("%v repairs of a target that nobody changed", n)
		}
	})

	t.Run("a target that upstream made loses the keys that are gone", func(t *testing.T) {
		old := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "upstream", Labels: map[string]string{esv1.LabelManaged: esv1.LabelManagedValue}},
			Data:       map[string]string{"a": "1", "gone": "x"},
		}
		if err := product.Client.Create(t.Context(), old, client.FieldOwner("external-secrets")); err != nil {
			t.Fatal(err)
		}

		old.Data["theirs"] = "kept"
		if err := product.Client.Update(t.Context(), old, client.FieldOwner("somebody")); err != nil {
			t.Fatal(err)
		}

		apply(t, ns, es("upstream", "  target: {manifest: {apiVersion: v1, kind: ConfigMap}}\n  dataFrom: [{extract: {key: db}}]\n"))
		synced(t, ns, "upstream")

		now, err := configMap(t.Context(), ns, "upstream")
		if err != nil || now.UID != old.UID {
			t.Fatalf("it was made anew: %v", err)
		}

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "theirs": "kept"}, now.Data); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}
	})

	t.Run("another controller's object is left alone, also when the store has nothing", func(t *testing.T) {
		owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"}}
		if err := product.Client.Create(t.Context(), owner); err != nil {
			t.Fatal(err)
		}

		isController := true
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "theirs", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ServiceAccount", Name: "owner", UID: owner.UID, Controller: &isController},
		}}}
		if err := product.Client.Create(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}

		apply(t, ns, es("thief", "  target: {name: theirs, manifest: {apiVersion: v1, kind: ConfigMap}}\n  dataFrom: [{extract: {key: db}}]\n"))

		eventually(t, func(ctx context.Context) error {
			_, ready, err := getES(ctx, ns, "thief")
			if err != nil || ready.Reason != esv1.ReasonResourceSyncedError {
				return fmt.Errorf("it does not fail: %+v: %w", ready, err)
			}

			return nil
		})
	})

	t.Run("kinds of the cluster are refused", func(t *testing.T) {
		apply(t, ns, es("cluster", "  target: {manifest: {apiVersion: v1, kind: Namespace}}\n  dataFrom: [{extract: {key: db}}]\n"))
		reasonIs(t, ns, "cluster", esv1.ReasonResourceSyncedError, "cluster-scoped")
	})
}

// refreshedTwice waits until an ExternalSecret was refreshed twice.
func refreshedTwice(t *testing.T, ns, name string) {
	t.Helper()

	for range 2 {
		last := synced(t, ns, name).Status.RefreshTime

		eventually(t, func(ctx context.Context) error {
			es, _, err := getES(ctx, ns, name)
			if err == nil && !es.Status.RefreshTime.After(last.Time) {
				err = errors.New("not refreshed yet")
			}

			return err
		})
	}
}

// repairs that the operator has counted.
func repairs(t *testing.T) float64 {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, product.MetricsURL(), nil)
	if err != nil {
		t.Fatal(err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()

	parser := expfmt.NewTextParser(model.LegacyValidation)

	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}

	sum := 0.0
	for _, metric := range families["externalsecret_repairs_total"].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}

	return sum
}
