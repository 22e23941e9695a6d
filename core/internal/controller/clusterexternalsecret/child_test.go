package clusterexternalsecret

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

func example() *esv1.ClusterExternalSecret {
	return &esv1.ClusterExternalSecret{
		ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "ces", Annotations: map[string]string{esv1.AnnotationForceSync: "1", "other": "not copied"}},
		Spec: esv1.ClusterExternalSecretSpec{
			ExternalSecretMetadata: esv1.ExternalSecretMetadata{Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"note": "kept"}},
			ExternalSecretSpec:     esv1.ExternalSecretSpec{SecretStoreRef: &esv1.StoreRef{Name: "store"}},
		},
	}
}

// applied is an ExternalSecret as the API server has it after an apply.
func applied(c *child) *esv1.ExternalSecret {
	object := c.object("a")
	object.ManagedFields = []metav1.ManagedFieldsEntry{
		{
			Manager: esv1.FieldManagerClusterExternalSecret, Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:team":{}},"f:annotations":{"f:note":{},"f:external-secrets.io/force-sync":{}}}}`),
		},
		// The operator's own writes of the status.
		{Manager: esv1.FieldManagerOlder, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{}`)},
	}

	return object
}

func TestChild(t *testing.T) {
	c, err := newChild(example())
	if err != nil {
		t.Fatal(err)
	}

	object := c.object("a")
	if object.Name != "app" || object.Namespace != "a" || object.Labels["team"] != "a" || len(object.Annotations) != 2 || object.Annotations[esv1.AnnotationForceSync] != "1" {
		t.Errorf("metadata: %+v", object.ObjectMeta)
	}

	if !metav1.IsControlledBy(object, example()) {
		t.Errorf("owners: %+v", object.OwnerReferences)
	}

	ces := example()
	ces.Spec.ExternalSecretName = "other"
	ces.Annotations = nil

	other, err := newChild(ces)
	if err != nil {
		t.Fatal(err)
	}

	if other.name != "other" || len(other.annotations) != 1 {
		t.Errorf("name %s, annotations %v", other.name, other.annotations)
	}

	again, err := newChild(example())
	if err != nil || again.digest != c.digest || other.digest == c.digest {
		t.Errorf("digests: %s, again %s, other %s, error %v", c.digest, again.digest, other.digest, err)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(*esv1.ExternalSecret)
		want   bool
	}{
		{"unchanged since it was applied", func(*esv1.ExternalSecret) {}, true},
		{"a label of another writer is kept", func(es *esv1.ExternalSecret) { es.Labels["mine"] = "x" }, true},
		{"an empty list is equal to none", func(es *esv1.ExternalSecret) { es.Spec.Data = []esv1.Data{} }, true},
		{"a field with another value", func(es *esv1.ExternalSecret) { es.Spec.SecretStoreRef.Name = "other" }, false},
		{"a field that was added", func(es *esv1.ExternalSecret) { es.Spec.Target = &esv1.Target{} }, false},
		{"a label with another value", func(es *esv1.ExternalSecret) { es.Labels["team"] = "b" }, false},
		{"a label that is gone", func(es *esv1.ExternalSecret) { delete(es.Labels, "team") }, false},
		{"a label that is no longer wanted", func(es *esv1.ExternalSecret) {
			es.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:team":{},"f:former":{}},"f:annotations":{"f:note":{},"f:external-secrets.io/force-sync":{}}}}`)
		}, false},
		{"created and not applied yet", func(es *esv1.ExternalSecret) {
			es.ManagedFields[0].Operation = metav1.ManagedFieldsOperationUpdate
		}, true},
		{"created by an older operator", func(es *esv1.ExternalSecret) {
			es.ManagedFields[0].Manager, es.ManagedFields[0].Operation = esv1.FieldManagerOlder, metav1.ManagedFieldsOperationUpdate
		}, false},
		{"without managed fields, the writer is unknown", func(es *esv1.ExternalSecret) { es.ManagedFields = nil }, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			want, err := newChild(example())
			if err != nil {
				t.Fatal(err)
			}

			current := applied(want)
			c.change(current)

			if got := want.matches(current); got != c.want {
				t.Errorf("matches: %t", got)
			}
		})
	}
}
