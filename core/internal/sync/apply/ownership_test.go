package apply

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/compat"
)

// The content of a Secret is compared by its metadata only; these are the ways in
// which it can differ.
func TestIntact(t *testing.T) {
	t.Parallel()

	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "uid"}}
	isController := true

	applied := func(fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: compat.FieldManager("app"), Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	other := func(fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(fields)}
	}

	const mine = `{"f:data":{".":{},"f:a":{},"f:b":{}},"f:metadata":{"f:labels":{"f:team":{}}}}`

	for _, c := range []struct {
		why  string
		edit func(*metav1.PartialObjectMetadata)
		want bool
	}{
		{"as it was left", func(*metav1.PartialObjectMetadata) {}, true},
		{"a label of another writer is allowed", func(s *metav1.PartialObjectMetadata) {
			s.ManagedFields = append(s.ManagedFields, other(`{"f:metadata":{"f:labels":{"f:x":{}}}}`))
		}, true},
		{"another writer set a key to the same value", func(s *metav1.PartialObjectMetadata) {
			s.ManagedFields = append(s.ManagedFields, other(`{"f:data":{"f:a":{}}}`))
		}, true},
		{"another writer changed a value, and owns it now", func(s *metav1.PartialObjectMetadata) {
			s.ManagedFields = []metav1.ManagedFieldsEntry{applied(`{"f:data":{"f:b":{}}}`), other(`{"f:data":{"f:a":{}}}`)}
		}, false},
		{"another writer added a key", func(s *metav1.PartialObjectMetadata) {
			s.ManagedFields = append(s.ManagedFields, other(`{"f:data":{"f:c":{}}}`))
		}, false},
		{"another writer removed a key, and owns nothing", func(s *metav1.PartialObjectMetadata) {
			s.ManagedFields = []metav1.ManagedFieldsEntry{applied(`{"f:data":{"f:a":{}}}`)}
		}, false},
		{"an older operator wrote it by update", func(s *metav1.PartialObjectMetadata) {
			s.ManagedFields[0].Operation = metav1.ManagedFieldsOperationUpdate
		}, false},
		{"it lost the label by which it is known", func(s *metav1.PartialObjectMetadata) { delete(s.Labels, esv1.LabelManaged) }, false},
		{"it is another ExternalSecret's", func(s *metav1.PartialObjectMetadata) { s.Labels[esv1.LabelOwner] = compat.Owner("ns", "other") }, false},
		{"it lost its owner", func(s *metav1.PartialObjectMetadata) { s.OwnerReferences = nil }, false},
		{"its owner was made anew under the same name", func(s *metav1.PartialObjectMetadata) { s.OwnerReferences[0].UID = "former" }, false},
		{"it is being deleted", func(s *metav1.PartialObjectMetadata) { now := metav1.Now(); s.DeletionTimestamp = &now }, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			secret := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Labels:          map[string]string{esv1.LabelManaged: esv1.LabelManagedValue, esv1.LabelOwner: compat.Owner("ns", "app")},
				Annotations:     map[string]string{AnnotationKeysHash: compat.KeysHash([]string{"a", "b"})},
				OwnerReferences: []metav1.OwnerReference{{UID: "uid", Controller: &isController}},
				ManagedFields:   []metav1.ManagedFieldsEntry{applied(mine)},
			}}
			c.edit(secret)

			if got := Intact(es, secret); got != c.want {
				t.Errorf("Intact = %t", got)
			}
		})
	}

	if Intact(es, nil) {
		t.Error("a target that is not there is intact")
	}
}

func TestSameMetadata(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why             string
		keys            []string
		present, wanted map[string]string
		want            bool
	}{
		{"equal", []string{"a"}, map[string]string{"a": "1", "foreign": "x"}, map[string]string{"a": "1"}, true},
		{"a value that differs", []string{"a"}, map[string]string{"a": "2"}, map[string]string{"a": "1"}, false},
		{"a key to add", []string{"a"}, map[string]string{"a": "1"}, map[string]string{"a": "1", "b": "2"}, false},
		{"a key to take away", []string{"a", "b"}, map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "1"}, false},
		{"nothing at all", nil, nil, nil, true},
	} {
		if got := sameMetadata(c.keys, c.present, c.wanted); got != c.want {
			t.Errorf("%s: %t", c.why, got)
		}
	}
}
