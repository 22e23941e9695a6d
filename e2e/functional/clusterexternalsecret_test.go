package functional

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/testkit/suite"
)

func TestClusterExternalSecret(t *testing.T) {
	t.Parallel()

	name, a, b, c := product.Namespace(t), product.Namespace(t), product.Namespace(t), product.Namespace(t)
	for _, ns := range []string{a, b, c} {
		product.Apply(t, ns, suite.FakeStore)
	}

	product.Label(t, a, name)
	product.Label(t, b, name+"-2")

	product.FanOut(t, name, suite.Selecting(name)+`
  externalSecretMetadata:
    labels: {team: a}
    annotations: {note: kept}
`)

	change := func(t *testing.T, spec string) {
		t.Helper()
		product.Apply(t, name, suite.FanOutManifest(name, spec))
	}

	t.Run("a selector decides", func(t *testing.T) {
		product.Provisioned(t, name, "app", a)
		product.Holds(t, a, "app", "password", "s3cret")

		es := product.Synced(t, a, "app")
		if es.Labels["team"] != "a" || es.Annotations["note"] != "kept" {
			t.Errorf("labels %v, annotations %v", es.Labels, es.Annotations)
		}

		owner := metav1.GetControllerOf(es)
		if owner == nil || owner.Name != name || owner.Kind != "ClusterExternalSecret" || len(es.Finalizers) > 0 {
			t.Errorf("owner %v, finalizers %v", owner, es.Finalizers)
		}
	})

	t.Run("any of several selectors, and names", func(t *testing.T) {
		change(t, `  externalSecretName: app
  namespaceSelectors:
  - matchLabels: {`+suite.LabelTeam+`: `+name+`}
  - matchExpressions: [{key: `+suite.LabelTeam+`, operator: In, values: [`+name+`-2]}]
  namespaces: [`+c+`, not-there]
`)
		product.Provisioned(t, name, "app", a, b, c)

		if _, ready, _ := product.ClusterExternalSecret(t.Context(), name); !strings.Contains(ready.Message, "3 of 3 namespaces") || !strings.Contains(ready.Message, "spec.namespaces is deprecated") {
			t.Errorf("message: %s", ready.Message)
		}

		es := product.Child(t, a, func(*esv1.ExternalSecret) error { return nil })
		if es.Labels["team"] != "" || es.Annotations["note"] != "" {
			t.Errorf("labels and annotations that are no longer wanted: %v, %v", es.Labels, es.Annotations)
		}
	})

	t.Run("the deprecated selector", func(t *testing.T) {
		change(t, "  externalSecretName: app\n  namespaceSelector: {matchLabels: {"+suite.LabelTeam+": "+name+"-2}}\n")
		product.Provisioned(t, name, "app", b)
		product.Absent(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "app"}})
	})

	t.Run("a label that changes", func(t *testing.T) {
		change(t, suite.Selecting(name))
		product.Provisioned(t, name, "app", a)
		product.Label(t, b, name)
		product.Provisioned(t, name, "app", a, b)
		product.Label(t, a, "")
		product.Provisioned(t, name, "app", b)
		product.Label(t, a, name)
		product.Provisioned(t, name, "app", a, b)
	})

	t.Run("another name", func(t *testing.T) {
		change(t, strings.Replace(suite.Selecting(name), "app", "renamed", 1))
		product.Provisioned(t, name, "renamed", a, b)
		product.Absent(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "app"}})
		product.Holds(t, a, "renamed", "password", "s3cret")
	})

	t.Run("a selector that is invalid touches nothing", func(t *testing.T) {
		change(t, "  externalSecretName: renamed\n  namespaceSelectors:\n  - matchExpressions: [{key: a, operator: Like, values: [b]}]\n")

		suite.Eventually(t, func(ctx context.Context) error {
			ces, ready, err := product.ClusterExternalSecret(ctx, name)
			if err == nil && (ready.Reason != esv1.ReasonInvalidSelector || !strings.Contains(ready.Message, "namespaceSelectors[0]")) {
				err = fmt.Errorf("condition: %+v", *ready)
			}

			if err == nil && len(product.ChildrenOf(ctx, ces)) != 2 {
				err = fmt.Errorf("ExternalSecrets: %v", product.ChildrenOf(ctx, ces))
			}

			return err
		})
	})

	t.Run("what it made goes with it", func(t *testing.T) {
		if err := product.Client.Delete(t.Context(), &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}

		product.Absent(t, &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}})

		for _, ns := range []string{a, b} {
			product.Absent(t, &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "renamed"}})
			product.Absent(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "renamed"}})
		}
	})
}

// Another user's ExternalSecret of the name is left alone and reported; the
// other namespaces have theirs, and so has this one as soon as it can.
func TestClusterExternalSecretLeavesOthersAlone(t *testing.T) {
	t.Parallel()

	name, a, b := product.Namespace(t), product.Namespace(t), product.Namespace(t)
	for _, ns := range []string{a, b} {
		product.Apply(t, ns, suite.FakeStore)
		product.Label(t, ns, name)
	}

	product.Apply(t, a, suite.SimpleES("app", "store"))
	before := product.Synced(t, a, "app")

	product.FanOut(t, name, suite.Selecting(name))

	suite.Eventually(t, func(ctx context.Context) error {
		ces, ready, err := product.ClusterExternalSecret(ctx, name)
		if err != nil {
			return err
		}

		if ready.Status != metav1.ConditionFalse || ready.Reason != esv1.ReasonNamespacesFailed || !strings.Contains(ready.Message, "1 of 2 namespaces: "+a+`: ExternalSecret "app" exists`) {
			return fmt.Errorf("condition: %+v", *ready)
		}

		if len(ces.Status.FailedNamespaces) != 1 || ces.Status.FailedNamespaces[0].Namespace != a || !slices.Equal(ces.Status.ProvisionedNamespaces, []string{b}) {
			return fmt.Errorf("status: %+v", ces.Status)
		}

		return nil
	})

	after := product.Synced(t, a, "app")
	if after.UID != before.UID || after.Generation != before.Generation || len(after.OwnerReferences) > 0 {
		t.Errorf("it was touched: %+v", after.ObjectMeta)
	}

	if err := product.Client.Delete(t.Context(), after); err != nil {
		t.Fatal(err)
	}

	product.Provisioned(t, name, "app", a, b)
}

// The operator depends on this when it applies under a UID: the API server rejects
// the apply if another object has the name, and if none has.
func TestClusterExternalSecretAppliesUnderUID(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore+suite.SimpleES("app", "store"))
	before := product.Synced(t, ns, "app")

	for _, name := range []string{"app", "absent"} {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"refreshInterval": "5m"}}}
		object.SetGroupVersionKind(esv1.GroupVersion.WithKind("ExternalSecret"))
		object.SetNamespace(ns)
		object.SetName(name)
		object.SetUID("another")

		err := product.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("another-user"), client.ForceOwnership)
		if refused := apierrors.IsConflict(err) || (apierrors.IsInvalid(err) && strings.Contains(err.Error(), "metadata.uid")); !refused {
			t.Errorf("%s: %v", name, err)
		}
	}

	if after := product.Synced(t, ns, "app"); after.Generation != before.Generation {
		t.Error("it was touched")
	}
}

// Changes and deletions by another user are repaired at once; additional metadata
// is kept.
func TestClusterExternalSecretRepairs(t *testing.T) {
	t.Parallel()

	cases := []struct {
		why    string
		change map[string]any
	}{
		{"a field that has another value", map[string]any{"spec": map[string]any{"secretStoreRef": map[string]any{"name": "other"}}}},
		{"fields that were added", map[string]any{"spec": map[string]any{"target": map[string]any{"name": "mine", "template": map[string]any{"data": map[string]any{"a": "b"}}}}}},
		{"a field that was removed", map[string]any{"spec": map[string]any{"data": nil}}},
		{"a label that has another value", map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "b"}}}},
		{"a label that was removed", map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": nil}}}},
		{"all of it was deleted", nil},
	}

	name := product.Namespace(t)
	namespaces := make([]string, len(cases))

	for i := range cases {
		namespaces[i] = product.Namespace(t)
		product.Apply(t, namespaces[i], suite.FakeStore)
		product.Label(t, namespaces[i], name)
	}

	product.FanOut(t, name, suite.Selecting(name)+"  externalSecretMetadata: {labels: {team: a}}\n")
	product.Provisioned(t, name, "app", slices.Clone(namespaces)...)

	for i, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			wanted := product.Synced(t, namespaces[i], "app")
			key := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: namespaces[i], Name: "app"}}
			deleted := c.change == nil

			if deleted {
				if err := product.Client.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			} else {
				product.Merge(t, key.DeepCopy(), map[string]any{"metadata": map[string]any{"labels": map[string]any{"mine": "kept"}}})
				product.Merge(t, key, c.change)
			}

			product.Child(t, namespaces[i], func(es *esv1.ExternalSecret) error {
				if diff := cmp.Diff(wanted.Spec, es.Spec); diff != "" || es.Labels["team"] != "a" {
					return fmt.Errorf("labels %v, spec (-want +got):\n%s", es.Labels, diff)
				}

				if (es.UID != wanted.UID) != deleted || (es.Labels["mine"] == "kept") == deleted {
					return fmt.Errorf("created again, or without another user's label: %v", es.ObjectMeta)
				}

				return nil
			})

			product.Synced(t, namespaces[i], "app")
		})
	}
}

func TestClusterExternalSecretForcesSyncs(t *testing.T) {
	t.Parallel()

	name, a := product.Namespace(t), product.Namespace(t)
	product.Apply(t, a, suite.FakeStore)
	product.Label(t, a, name)
	product.FanOut(t, name, suite.Selecting(name))
	product.Provisioned(t, name, "app", a)

	first := product.Synced(t, a, "app").Status.RefreshTime
	ces := &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}}

	time.Sleep(time.Second) // refreshTime has no fractions
	product.Merge(t, ces.DeepCopy(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{esv1.AnnotationForceSync: "now"}}})
	product.Child(t, a, func(es *esv1.ExternalSecret) error {
		if es.Annotations[esv1.AnnotationForceSync] != "now" || !es.Status.RefreshTime.After(first.Time) {
			return fmt.Errorf("annotations %v, synced %s, before %s", es.Annotations, es.Status.RefreshTime, first)
		}

		return nil
	})

	product.Merge(t, ces.DeepCopy(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{esv1.AnnotationForceSync: nil}}})
	product.Child(t, a, func(es *esv1.ExternalSecret) error {
		if value, ok := es.Annotations[esv1.AnnotationForceSync]; ok {
			return fmt.Errorf("the annotation is still there: %q", value)
		}

		return nil
	})
}

func TestClusterExternalSecretAdmission(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ why, spec, want string }{
		{"a duration that is none", "  refreshTime: soon\n", "refreshTime"},
		{"a negative duration", "  refreshTime: -1s\n", "zero or more"},
		{"a name that none can have", "  externalSecretName: A_B\n", "externalSecretName"},
		{"a namespace that none can have", "  namespaces: [A_B]\n", "namespaces"},
		{"an unknown field is a typing error", "  namespaceselectors: []\n", "field not declared in schema"},
	} {
		t.Run(c.why, func(t *testing.T) {
			out, err := product.Kubectl(t.Context(), suite.FanOutManifest("refused", c.spec), "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("want a refusal with %q, got: %v\n%s", c.want, err, out)
			}
		})
	}
}
