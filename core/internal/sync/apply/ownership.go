package apply

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/compat"
	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// AnnotationKeysHash holds the digest of the keys that were written, so that a
// key that was removed is missed without reading the Secret; behind it,
// the digest of the type that the template asks for.
const AnnotationKeysHash = "reconcile.external-secrets.io/data-keys"

// owned is what a field manager owns of a Secret.
type owned struct {
	data, labels, annotations, finalizers []string
	immutable                             bool
}

// annotationMerged is followed by the digest of an ExternalSecret's name. It
// holds the digests of keys and data that this ExternalSecret added to a Secret
// which is not its own.
const annotationMerged = "merged.reconcile.external-secrets.io/"

func mergedAnnotation(es *esv1.ExternalSecret) string {
	return annotationMerged + compat.Digest(es.Name)
}

// Intact reports whether a target is as the operator left it, as far as its
// policy cares: with all the keys that were written and, where the
// ExternalSecret is its master, not another client's.
func Intact(es *esv1.ExternalSecret, current *metav1.PartialObjectMetadata) bool {
	target := plan.TargetOf(es)

	switch target.Creation {
	case esv1.CreationNone, esv1.CreationOrphan:
		// An orphan is repaired when its store is read again.
		return true
	case esv1.CreationOwner, esv1.CreationMerge, esv1.CreationCreateOrMerge:
		return intact(es, target, current)
	default:
		return false
	}
}

func intact(es *esv1.ExternalSecret, target plan.Target, current *metav1.PartialObjectMetadata) bool {
	return applied(es, target, current) && len(foreignKeys(es, target, current)) == 0
}

// applied reports whether a target has what was applied, whatever else it has.
func applied(es *esv1.ExternalSecret, target plan.Target, current *metav1.PartialObjectMetadata) bool {
	if current == nil || current.DeletionTimestamp != nil || current.Labels[esv1.LabelManaged] != esv1.LabelManagedValue {
		return false
	}

	if target.Owns() && (current.Labels[esv1.LabelOwner] != compat.Owner(es.Namespace, es.Name) || !metav1.IsControlledBy(current, es)) {
		return false
	}

	mine, _ := ownership(current, compat.FieldManager(es.Name))
	if mine == nil {
		return false
	}

	annotation := mergedAnnotation(es)
	if target.Replaces() {
		annotation = AnnotationKeysHash
	}

	// It is followed by other digests.
	keys, _, _ := strings.Cut(current.Annotations[annotation], ".")

	return keys == compat.KeysHash(mine.data)
}

// foreignKeys are those that others have added to a target which holds what the
// ExternalSecret says and nothing else.
func foreignKeys(es *esv1.ExternalSecret, target plan.Target, current *metav1.PartialObjectMetadata) []string {
	if !target.Replaces() {
		return nil
	}

	_, foreign := ownership(current, compat.FieldManager(es.Name))

	return foreign
}

// Frozen reports whether a target is there and immutable, as the ExternalSecret
// requires it: then there is nothing left to do.
func Frozen(es *esv1.ExternalSecret, current *metav1.PartialObjectMetadata) bool {
	if current == nil || current.DeletionTimestamp != nil || !plan.TargetOf(es).Immutable {
		return false
	}

	mine, _ := ownership(current, compat.FieldManager(es.Name))

	return mine != nil && mine.immutable
}

// ours reports whether the ExternalSecret has written to a Secret before.
func ours(es *esv1.ExternalSecret, current *metav1.PartialObjectMetadata) bool {
	mine, _ := ownership(current, compat.FieldManager(es.Name))

	return mine != nil
}

// ownership gives what the field manager applied, nil where it never did, and
// the keys of the data that others own alone. A key that is owned by several
// has the value that all of them gave it.
func ownership(object *metav1.PartialObjectMetadata, manager string) (mine *owned, foreign []string) {
	for _, entry := range object.ManagedFields {
		fields := fieldsOf(entry)

		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			mine = &fields

			continue
		}

		foreign = append(foreign, fields.data...)
	}

	if mine != nil {
		foreign = slices.DeleteFunc(foreign, func(key string) bool { return slices.Contains(mine.data, key) })
	}

	return mine, foreign
}

// fieldsOf reads the keys out of a managed fields entry (KEP-555: fields are
// keys that begin with "f:").
func fieldsOf(entry metav1.ManagedFieldsEntry) owned {
	if entry.FieldsV1 == nil {
		return owned{}
	}

	var fields struct {
		Data      map[string]json.RawMessage `json:"f:data"`
		Immutable json.RawMessage            `json:"f:immutable"`
		Metadata  struct {
			Labels      map[string]json.RawMessage `json:"f:labels"`
			Annotations map[string]json.RawMessage `json:"f:annotations"`
			Finalizers  map[string]json.RawMessage `json:"f:finalizers"`
		} `json:"f:metadata"`
	}

	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return owned{}
	}

	return owned{
		data: names(fields.Data), labels: names(fields.Metadata.Labels), annotations: names(fields.Metadata.Annotations),
		finalizers: members(fields.Metadata.Finalizers), immutable: fields.Immutable != nil,
	}
}

// members of a set of texts: keys that begin with "v:" and go on as JSON.
func members[V any](fields map[string]V) []string {
	var texts []string

	for field := range fields {
		var text string
		if quoted, ok := strings.CutPrefix(field, "v:"); ok && json.Unmarshal([]byte(quoted), &text) == nil {
			texts = append(texts, text)
		}
	}

	return texts
}

func names(fields map[string]json.RawMessage) []string {
	var keys []string

	for field := range fields {
		if key, ok := strings.CutPrefix(field, "f:"); ok {
			keys = append(keys, key)
		}
	}

	slices.Sort(keys)

	return keys
}

// sameMetadata reports whether what the manager owns of the labels or
// annotations is exactly what is wanted, and has its values.
func sameMetadata(keys []string, present, wanted map[string]string) bool {
	if !slices.Equal(keys, slices.Sorted(maps.Keys(wanted))) {
		return false
	}

	for key, value := range wanted {
		if present[key] != value {
			return false
		}
	}

	return true
}
