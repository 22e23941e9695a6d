package clusterexternalsecret

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// child is what the ExternalSecret of a ClusterExternalSecret should be, the
// same in every namespace.
type child struct {
	name                string
	labels, annotations map[string]string
	owner               metav1.OwnerReference
	spec                esv1.ExternalSecretSpec
	// digest of all of this. It distinguishes a change that is intended from one
	// of another client.
	digest string
}

// childName is the name of the ExternalSecrets.
func childName(ces *esv1.ClusterExternalSecret) string {
	if ces.Spec.ExternalSecretName != "" {
		return ces.Spec.ExternalSecretName
	}

	return ces.Name
}

// newChild reads what the ExternalSecrets should be.
func newChild(ces *esv1.ClusterExternalSecret) (*child, error) {
	c := &child{
		name:        childName(ces),
		labels:      maps.Clone(ces.Spec.ExternalSecretMetadata.Labels),
		annotations: maps.Clone(ces.Spec.ExternalSecretMetadata.Annotations),
		owner:       *metav1.NewControllerRef(ces, esv1.GroupVersion.WithKind(esv1.ClusterExternalSecretKind)),
		spec:        *ces.Spec.ExternalSecretSpec.DeepCopy(),
	}

	// To force a sync of the ClusterExternalSecret is to force it of all that
	// it made.
	if value, ok := ces.Annotations[esv1.AnnotationForceSync]; ok {
		if c.annotations == nil {
			c.annotations = map[string]string{}
		}

		c.annotations[esv1.AnnotationForceSync] = value
	}

	content, err := json.Marshal(c.object(""))
	if err != nil {
		return nil, fmt.Errorf("cannot digest the spec of ClusterExternalSecret %q: %w", ces.Name, err)
	}

	sum := sha256.Sum256(content)
	c.digest = hex.EncodeToString(sum[:8])

	return c, nil
}

// object returns the ExternalSecret of a namespace, as it is created.
func (c *child) object(namespace string) *esv1.ExternalSecret {
	object := &esv1.ExternalSecret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: c.name,
			Labels: c.labels, Annotations: c.annotations, OwnerReferences: []metav1.OwnerReference{c.owner},
		},
		Spec: c.spec,
	}

	return object.DeepCopy()
}

// applied is the same ExternalSecret as it is applied: what has no value must
// not be part of it, or it would be owned.
func (c *child) applied(current *esv1.ExternalSecret) (*unstructured.Unstructured, error) {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.spec)
	if err != nil {
		return nil, err
	}

	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(esv1.GroupVersion.WithKind(esv1.ExternalSecretKind))
	object.SetNamespace(current.Namespace)
	object.SetName(current.Name)
	// Another object that has taken the name meanwhile is not meant.
	object.SetUID(current.UID)
	object.SetOwnerReferences([]metav1.OwnerReference{c.owner})

	if len(c.labels) > 0 {
		object.SetLabels(c.labels)
	}

	if len(c.annotations) > 0 {
		object.SetAnnotations(c.annotations)
	}

	return object, nil
}

// matches reports whether an ExternalSecret that the ClusterExternalSecret
// controls is as it should be, so that nothing needs to be written.
//
// It compares what is wanted with what the cache shows, not a digest that was
// left on the object: an annotation that says what was applied would still say
// so after another client had changed the rest, and would be copied to the Secret.
// The spec has to be equal as a whole, because a field that another client added is
// a change, too. Of labels and annotations others may have their own: there
// managedFields show which ones were given by a ClusterExternalSecret, and
// those have to be exactly the ones that are wanted.
func (c *child) matches(current *esv1.ExternalSecret) bool {
	mine, olds := given(current.ManagedFields)

	return mine != nil && !olds &&
		equality.Semantic.DeepEqual(c.spec, current.Spec) &&
		same(mine.labels, current.Labels, c.labels) &&
		same(mine.annotations, current.Annotations, c.annotations)
}

// metadata names labels and annotations.
type metadata struct{ labels, annotations map[string]bool }

// given returns which labels and annotations the operator gave to an
// ExternalSecret, nil where it gave nothing, and whether an older one has
// written it. What is made is owned by an update, what is changed by an apply.
func given(entries []metav1.ManagedFieldsEntry) (mine *metadata, olds bool) {
	for _, entry := range entries {
		if entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}

		switch {
		case entry.Manager == esv1.FieldManagerOlder && entry.Operation == metav1.ManagedFieldsOperationUpdate:
			olds = true
		case entry.Manager == esv1.FieldManagerClusterExternalSecret:
			if mine == nil {
				mine = &metadata{labels: map[string]bool{}, annotations: map[string]bool{}}
			}

			mine.read(entry.FieldsV1)
		}
	}

	return mine, olds
}

// read adds the names in a managed fields entry, where fields are keys that
// begin with "f:" (KEP-555).
func (m *metadata) read(fields *metav1.FieldsV1) {
	var owned struct {
		Metadata struct {
			Labels      map[string]json.RawMessage `json:"f:labels"`
			Annotations map[string]json.RawMessage `json:"f:annotations"`
		} `json:"f:metadata"`
	}

	if err := json.Unmarshal(fields.GetRawBytes(), &owned); err != nil {
		return
	}

	for from, to := range map[*map[string]json.RawMessage]map[string]bool{
		&owned.Metadata.Labels: m.labels, &owned.Metadata.Annotations: m.annotations,
	} {
		for field := range *from {
			if key, ok := strings.CutPrefix(field, "f:"); ok {
				to[key] = true
			}
		}
	}
}

// same reports whether the keys that were given are those that are expected, and
// have their values.
func same(keys map[string]bool, present, wanted map[string]string) bool {
	if len(keys) != len(wanted) {
		return false
	}

	for key, value := range wanted {
		if has, ok := present[key]; !keys[key] || !ok || has != value {
			return false
		}
	}

	return true
}

// handwritten reports whether some of what the operator gave was written by
// Update, by an older operator or when the object was made: server-side apply
// alone would never take it away again.
func handwritten(entries []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" &&
			(entry.Manager == esv1.FieldManagerOlder || entry.Manager == esv1.FieldManagerClusterExternalSecret)
	})
}
