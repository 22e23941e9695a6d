package functional

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/testkit/suite"
)

func configMap(ctx context.Context, ns, name string) (*corev1.ConfigMap, error) {
	object := &corev1.ConfigMap{}

	return object, product.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, object)
}

func TestManifestTargets(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.GenericTargets)

	if out, err := product.Kubectl(t.Context(), "", "wait", "--for=condition=Established", "--timeout=60s", "crd/things.example.com"); err != nil {
		t.Fatal(out, err)
	}

	product.Apply(t, ns, suite.FakeWith("  - {key: db, value: '{\"a\":\"1\",\"b\":\"2\"}'}\n"))

	t.Run("a ConfigMap is made, repaired, renamed and goes with its owner", func(t *testing.T) {
		manifest := func(name string) string {
			return suite.ES("map", "  target: {name: "+name+", manifest: {apiVersion: v1, kind: ConfigMap}}\n  dataFrom: [{extract: {key: db}}]\n")
		}

		product.Apply(t, ns, manifest("made"))
		product.ReasonIs(t, ns, "map", esv1.ReasonResourceSynced, "resource synced")

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

		suite.Eventually(t, func(ctx context.Context) error {
			if made, err = configMap(ctx, ns, "made"); err != nil || made.Data["a"] != "1" {
				return fmt.Errorf("it is not repaired: %v: %w", made.Data, err)
			}

			return nil
		})

		product.Apply(t, ns, manifest("renamed"))
		suite.Eventually(t, func(ctx context.Context) error {
			_, err := configMap(ctx, ns, "renamed")
			if _, old := configMap(ctx, ns, "made"); !apierrors.IsNotFound(old) {
				return errors.Join(err, errors.New("the old one is still there"))
			}

			return err
		})

		product.DeleteES(t, ns, "map")
		suite.Eventually(t, func(ctx context.Context) error {
			if _, err := configMap(ctx, ns, "renamed"); !apierrors.IsNotFound(err) {
				return errors.Join(err, errors.New("it is still there"))
			}

			return nil
		})
	})

	t.Run("a custom resource is filled by paths", func(t *testing.T) {
		product.Apply(t, ns, suite.ES("thing", `  target:
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
		product.ReasonIs(t, ns, "thing", esv1.ReasonResourceSynced)

		thing := &unstructured.Unstructured{}
		thing.SetAPIVersion("example.com/v1")
		thing.SetKind("Thing")

		if err := product.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "thing"}, thing); err != nil {
			t.Fatal(err)
		}

		// Fields that the API server adds are no drift.
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

		// Changes of another client inside of a list are drift, too.
		patch := []byte(`{"spec":{"ports":[{"port":80,"protocol":"UDP"}]}}`)
		if err := product.Client.Patch(t.Context(), thing, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("another-user")); err != nil {
			t.Fatal(err)
		}

		suite.Eventually(t, func(ctx context.Context) error {
			err := product.Client.Get(ctx, client.ObjectKeyFromObject(thing), thing)
			if diff := cmp.Diff(want, thing.Object["spec"]); err == nil && diff != "" {
				err = fmt.Errorf("it is not repaired (-want +got):\n%s", diff)
			}

			return err
		})
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
		if err := product.Client.Update(t.Context(), old, client.FieldOwner("another-user")); err != nil {
			t.Fatal(err)
		}

		product.Apply(t, ns, suite.ES("upstream", "  target: {manifest: {apiVersion: v1, kind: ConfigMap}}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Synced(t, ns, "upstream")

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

		product.Apply(t, ns, suite.ES("thief", "  target: {name: theirs, manifest: {apiVersion: v1, kind: ConfigMap}}\n  dataFrom: [{extract: {key: db}}]\n"))

		suite.Eventually(t, func(ctx context.Context) error {
			_, ready, err := product.ExternalSecret(ctx, ns, "thief")
			if err != nil || ready.Reason != esv1.ReasonResourceSyncedError {
				return fmt.Errorf("it does not fail: %+v: %w", ready, err)
			}

			return nil
		})
	})

	t.Run("kinds of the cluster are refused", func(t *testing.T) {
		product.Apply(t, ns, suite.ES("cluster", "  target: {manifest: {apiVersion: v1, kind: Namespace}}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.ReasonIs(t, ns, "cluster", esv1.ReasonResourceSyncedError, "cluster-scoped")
	})
}

// refreshedTwice waits until an ExternalSecret was refreshed twice.
func refreshedTwice(t *testing.T, ns, name string) {
	t.Helper()

	for range 2 {
		last := product.Synced(t, ns, name).Status.RefreshTime

		suite.Eventually(t, func(ctx context.Context) error {
			es, _, err := product.ExternalSecret(ctx, ns, name)
			if err == nil && !es.Status.RefreshTime.After(last.Time) {
				err = errors.New("not refreshed yet")
			}

			return err
		})
	}
}
