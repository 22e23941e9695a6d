package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/marker"
	"github.com/external-secrets/eso/core/internal/render"
)

// Change says what a write did.
type Change int

const (
	// Unchanged: nothing was written.
	Unchanged Change = iota
	// Created: the target did not exist.
	Created
	// Updated: the target differed.
	Updated
)

// Outcome of an Apply.
type Outcome struct {
	Change Change
	// ResourceVersion of the target after a write.
	ResourceVersion string
	// Removed names Secrets that were deleted because the target's name
	// changed.
	Removed []string
}

// OwnershipError says that the target belongs to somebody else. Only a change
// of an object ends it.
type OwnershipError struct{ Message string }

// Error gives the message.
func (e *OwnershipError) Error() string { return e.Message }

// Applier writes targets.
type Applier struct {
	client client.Client
}

// New makes an applier. c reads the metadata of managed Secrets from a cache
// and writes to the API server.
func New(c client.Client) *Applier { return &Applier{client: c} }

// Observe gives the metadata of a target; nil where none is known.
func (a *Applier) Observe(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	object := secretMetadata(namespace, name)

	err := a.client.Get(ctx, client.ObjectKeyFromObject(object), object)

	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is an answer here
	case err != nil:
		return nil, fmt.Errorf("cannot read the metadata of Secret %q in namespace %q: %w", name, namespace, err)
	default:
		return object, nil
	}
}

// Apply makes the target be what was rendered. current is what Observe gave.
func (a *Applier) Apply(ctx context.Context, es *esv1.ExternalSecret, target *render.Target, current *metav1.PartialObjectMetadata) (Outcome, error) {
	if err := foreign(es, current); err != nil {
		return Outcome{}, err
	}

	labels, annotations := metadata(es, target)

	removed, err := a.removeRenamed(ctx, es, target.Name)
	if err != nil {
		return Outcome{}, err
	}

	if unchanged(es, current, labels, annotations) {
		return Outcome{Removed: removed}, nil
	}

	manager := marker.FieldManager(es.Name)
	if err := a.adopt(ctx, current, manager); err != nil {
		return Outcome{}, err
	}

	written, err := a.write(ctx, es, target, manager, labels, annotations)
	if err != nil {
		return Outcome{}, err
	}

	outcome := Outcome{Change: Updated, Removed: removed}
	if current == nil {
		outcome.Change = Created
	}

	if written.ResourceVersion != nil {
		outcome.ResourceVersion = *written.ResourceVersion
	}

	return outcome, a.removeForeignKeys(ctx, es, target, written, &outcome)
}

// foreign refuses a target that another controller owns.
func foreign(es *esv1.ExternalSecret, current *metav1.PartialObjectMetadata) error {
	if current == nil {
		return nil
	}

	owner := metav1.GetControllerOf(current)
	if owner == nil || owner.UID == es.UID {
		return nil
	}

	return &OwnershipError{Message: fmt.Sprintf("Secret %q is owned by %s %q; name another target in spec.target.name", current.Name, owner.Kind, owner.Name)}
}

func metadata(es *esv1.ExternalSecret, target *render.Target) (labels, annotations map[string]string) {
	labels, annotations = maps.Clone(target.Labels), maps.Clone(target.Annotations)
	if labels == nil {
		labels = map[string]string{}
	}

	if annotations == nil {
		annotations = map[string]string{}
	}

	labels[esv1.LabelManaged] = esv1.LabelManagedValue
	labels[esv1.LabelOwner] = marker.Owner(es.Namespace, es.Name)
	annotations[esv1.AnnotationDataHash] = marker.DataHash(target.Data)
	annotations[AnnotationKeysHash] = marker.KeysHash(marker.Keys(target.Data))

	return labels, annotations
}

func unchanged(es *esv1.ExternalSecret, current *metav1.PartialObjectMetadata, labels, annotations map[string]string) bool {
	if !Intact(es, current) {
		return false
	}

	mine, _ := ownership(current, marker.FieldManager(es.Name))

	return sameMetadata(mine.labels, current.Labels, labels) && sameMetadata(mine.annotations, current.Annotations, annotations)
}

// adopt turns what an older operator wrote by Update into what was applied, or
// server-side apply would never remove a key of it.
func (a *Applier) adopt(ctx context.Context, current *metav1.PartialObjectMetadata, manager string) error {
	if current == nil || !slices.ContainsFunc(current.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
	}) {
		return nil
	}

	patch, err := csaupgrade.UpgradeManagedFieldsPatch(current, sets.New(manager), manager)
	if err != nil {
		return fmt.Errorf("cannot adopt Secret %q: %w", current.Name, err)
	}

	if patch == nil {
		return nil
	}

	if err := a.client.Patch(ctx, secretMetadata(current.Namespace, current.Name), client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("cannot adopt Secret %q: %w", current.Name, err)
	}

	return nil
}

func (a *Applier) write(
	ctx context.Context, es *esv1.ExternalSecret, target *render.Target, manager string, labels, annotations map[string]string,
) (*corev1apply.SecretApplyConfiguration, error) {
	secret := corev1apply.Secret(target.Name, es.Namespace).
		WithLabels(labels).
		WithAnnotations(annotations).
		WithOwnerReferences(metav1apply.OwnerReference().
			WithAPIVersion(esv1.GroupVersion.String()).WithKind(esv1.ExternalSecretKind).
			WithName(es.Name).WithUID(es.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithType(corev1.SecretType(target.Type)).
		WithData(target.Data)

	err := a.client.Apply(ctx, secret, client.FieldOwner(manager), client.ForceOwnership)

	switch {
	case err == nil:
		return secret, nil
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "Only one reference can have Controller set to true"):
		return nil, &OwnershipError{Message: fmt.Sprintf("Secret %q is owned by another controller; name another target in spec.target.name", target.Name)}
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "type: Invalid value"):
		return nil, &OwnershipError{Message: fmt.Sprintf("Secret %q exists with another type than %s, and a Secret's type cannot change; delete it or name another target in spec.target.name", target.Name, target.Type)}
	default:
		return nil, fmt.Errorf("cannot write Secret %q: %w", target.Name, scrub(err))
	}
}

// scrub keeps the API server's answer from quoting the object it refused.
func scrub(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return err
	}

	var fields []string

	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			fields = append(fields, cause.Field+" ("+string(cause.Type)+")")
		}
	}

	return fmt.Errorf("the API server refuses it: %s", strings.Join(fields, ", "))
}

// removeForeignKeys removes what the target holds besides what was applied:
// with creationPolicy Owner the ExternalSecret alone says what is in it.
func (a *Applier) removeForeignKeys(
	ctx context.Context, es *esv1.ExternalSecret, target *render.Target, written *corev1apply.SecretApplyConfiguration, outcome *Outcome,
) error {
	gone := map[string]any{}

	for key := range written.Data {
		if _, wanted := target.Data[key]; !wanted {
			gone[key] = nil
		}
	}

	if len(gone) == 0 {
		return nil
	}

	patch, err := json.Marshal(map[string]any{"data": gone})
	if err != nil {
		return fmt.Errorf("cannot remove foreign keys of Secret %q: %w", target.Name, err)
	}

	object := secretMetadata(es.Namespace, target.Name)
	if err := a.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(marker.FieldManager(es.Name))); err != nil {
		return fmt.Errorf("cannot remove foreign keys of Secret %q: %w", target.Name, err)
	}

	outcome.ResourceVersion = object.ResourceVersion

	return nil
}

// removeRenamed deletes Secrets that the ExternalSecret owns under another
// name than its target's.
func (a *Applier) removeRenamed(ctx context.Context, es *esv1.ExternalSecret, name string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))

	if err := a.client.List(ctx, list, client.InNamespace(es.Namespace), client.MatchingFields{IndexOwner: marker.Owner(es.Namespace, es.Name)}); err != nil {
		return nil, fmt.Errorf("cannot list the Secrets of ExternalSecret %q: %w", es.Name, err)
	}

	var removed []string

	for i := range list.Items {
		old := &list.Items[i]
		if old.Name == name || !metav1.IsControlledBy(old, es) || old.DeletionTimestamp != nil {
			continue
		}

		old.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))

		uid := old.UID
		if err := a.client.Delete(ctx, old, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cannot delete Secret %q, which is no longer the target: %w", old.Name, err)
		}

		removed = append(removed, old.Name)
	}

	return removed, nil
}

// IndexOwner is the name of the cache's index of managed Secrets by
// ByOwner.
const IndexOwner = "owner"

// ByOwner indexes the metadata of a managed Secret by its owner label.
func ByOwner(object client.Object) []string {
	if owner := object.GetLabels()[esv1.LabelOwner]; owner != "" {
		return []string{owner}
	}

	return nil
}

func secretMetadata(namespace, name string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))

	return object
}
