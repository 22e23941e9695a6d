package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/testkit/suite"
)

// ExternalSecrets that an older operator created are taken over: they keep their
// UID, fields that are not specified are removed, and so are the finalizers.
func TestClusterExternalSecretAdopts(t *testing.T) {
	name, a, left := product.Namespace(t), product.Namespace(t), product.Namespace(t)
	product.Apply(t, a, suite.FakeStore)

	finalizer := esv1.FinalizerNamespacePrefix + name
	cleanup := "externalsecrets.external-secrets.io/clusterexternalsecret-cleanup"

	// It matches nothing yet.
	product.FanOut(t, name, suite.Selecting(name))

	ces := &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}}
	product.Merge(t, ces, map[string]any{"metadata": map[string]any{"finalizers": []string{cleanup}}})

	old := &esv1.ExternalSecret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a, Name: "app", Labels: map[string]string{"stale": "label"},
			Annotations:     map[string]string{esv1.AnnotationForceSync: "stale"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ces, esv1.GroupVersion.WithKind("ClusterExternalSecret"))},
			Finalizers:      []string{esv1.FinalizerCleanup},
		},
		Spec: *ces.Spec.ExternalSecretSpec.DeepCopy(),
	}
	old.Spec.Target = &esv1.Target{DeletionPolicy: esv1.DeletionRetain}

	// The older operator is not there to mind the namespace's label.
	if err := product.StopOperator(); err != nil {
		t.Fatal(err)
	}

	err := product.Client.Create(t.Context(), old, client.FieldOwner("external-secrets"))

	product.Label(t, a, name)

	for _, ns := range []string{a, left} {
		product.Merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, map[string]any{"metadata": map[string]any{"finalizers": []string{finalizer, "test.example/mine"}}})
	}

	if err := errors.Join(err, product.RestartOperator(context.Background())); err != nil {
		t.Fatal(err)
	}

	product.Provisioned(t, name, "app", a)

	es := product.Child(t, a, func(es *esv1.ExternalSecret) error {
		if len(es.Labels) > 0 || len(es.Annotations) > 0 || es.Spec.Target != nil {
			return fmt.Errorf("labels %v, annotations %v, target %v", es.Labels, es.Annotations, es.Spec.Target)
		}

		return nil
	})
	if es.UID != old.UID {
		t.Error("the ExternalSecret was made anew")
	}

	finalizers := func(ns string, want ...string) {
		t.Helper()
		suite.Eventually(t, func(ctx context.Context) error {
			namespace := &corev1.Namespace{}

			err := product.Client.Get(ctx, client.ObjectKey{Name: ns}, namespace)
			if err == nil && !slices.Equal(namespace.Finalizers, want) {
				err = fmt.Errorf("Namespace %s has the finalizers %v", ns, namespace.Finalizers)
			}

			return err
		})
	}

	finalizers(a, "test.example/mine")
	finalizers(left, "test.example/mine")

	for _, ns := range []string{a, left} {
		product.Merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}

	if err := product.Client.Delete(t.Context(), ces.DeepCopy()); err != nil {
		t.Fatal(err)
	}

	product.Absent(t, ces.DeepCopy())

	// A Namespace whose ClusterExternalSecret is long gone can be deleted.
	product.Merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left}}, map[string]any{"metadata": map[string]any{"finalizers": []string{finalizer}}})

	if err := product.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left}}); err != nil {
		t.Fatal(err)
	}

	product.Absent(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left}})
}

// Without the right to patch Namespaces everything but the finalizers of older
// operators works, and these are reported.
func TestClusterExternalSecretWithoutTheRightToPatchNamespaces(t *testing.T) {
	binding := &rbacv1.ClusterRoleBinding{}
	if err := product.Client.Get(t.Context(), client.ObjectKey{Name: "external-secrets-operator-namespace-finalizers"}, binding); err != nil {
		t.Fatal(err)
	}

	if err := product.Client.Delete(t.Context(), binding.DeepCopy()); err != nil {
		t.Fatal(err)
	}

	binding.ResourceVersion, binding.UID = "", ""

	restore := sync.OnceFunc(func() {
		if err := product.Client.Create(context.Background(), binding); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)

	name, a, b := product.Namespace(t), product.Namespace(t), product.Namespace(t)
	for _, ns := range []string{a, b} {
		product.Label(t, ns, name)
	}

	product.Merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a}}, map[string]any{"metadata": map[string]any{"finalizers": []string{esv1.FinalizerNamespacePrefix + name}}})
	product.FanOut(t, name, suite.Selecting(name))

	suite.Eventually(t, func(ctx context.Context) error {
		ces, ready, err := product.ClusterExternalSecret(ctx, name)
		if err != nil {
			return err
		}

		if !strings.Contains(ready.Message, "1 of 2 namespaces: "+a+": cannot take the finalizer") || !strings.Contains(ready.Message, "forbidden") {
			return fmt.Errorf("condition: %+v", *ready)
		}

		if diff := cmp.Diff(2, len(product.ChildrenOf(ctx, ces))); diff != "" {
			return fmt.Errorf("ExternalSecrets (-want +got):\n%s", diff)
		}

		return nil
	})

	restore()
	product.Provisioned(t, name, "app", a, b)
}
