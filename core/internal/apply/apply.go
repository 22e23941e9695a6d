package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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
	"github.com/external-secrets/eso/core/internal/plan"
	"github.com/external-secrets/eso/core/internal/render"
)

// Change says what became of the target.
type Change int

const (
	// Unchanged: nothing was written.
	Unchanged Change = iota
	// Created: the target did not exist.
	Created
	// Updated: the target differed.
	Updated
	// Deleted: the target is gone.
	Deleted
)

// Outcome of an Apply or Delete.
type Outcome struct {
	Change Change
	// ResourceVersion of the target after a write.
	ResourceVersion string
	// Removed names Secrets that were deleted because the target's name
	// changed.
	Removed []string
}

// OwnershipError says that the target must not be written: it belongs to
// somebody else, or cannot become what it should be. Only a change of an object
// ends it.
type OwnershipError struct{ Message string }

// Error gives the message.
func (e *OwnershipError) Error() string { return e.Message }

// GoneError says that a target that is only added to has been deleted
// meanwhile.
type GoneError struct{ Kind, Name string }

// Error names the target.
func (e *GoneError) Error() string { return fmt.Sprintf("%s %q is gone", e.Kind, e.Name) }

// Writer writes targets of some kind. current is what Observe gave.
type Writer interface {
	// Observe gives the target as far as the policies need to know it; nil
	// where there is none.
	Observe(ctx context.Context, es *esv1.ExternalSecret) (client.Object, error)
	// Intact tells whether the target is as the operator left it, as far as its
	// policy cares.
	Intact(es *esv1.ExternalSecret, current client.Object) bool
	// Frozen tells whether the target is there and immutable, as it should be.
	Frozen(es *esv1.ExternalSecret, current client.Object) bool
	// Apply makes the target be what was rendered.
	Apply(ctx context.Context, es *esv1.ExternalSecret, target *render.Target, current client.Object) (Outcome, error)
	// Delete deletes the target, which the stores have nothing for any more.
	// One that the ExternalSecret does not own stays.
	Delete(ctx context.Context, es *esv1.ExternalSecret, current client.Object) (Outcome, error)
}

// Secrets writes targets that are Secrets.
type Secrets struct {
	client client.Client
	direct client.Reader
}

var _ Writer = (*Secrets)(nil)

// NewSecrets makes a writer. c reads the metadata of managed Secrets from a
// cache and writes to the API server; direct reads from the API server.
func NewSecrets(c client.Client, direct client.Reader) *Secrets {
	return &Secrets{client: c, direct: direct}
}

// metadataOf what Observe gave.
func metadataOf(current client.Object) *metav1.PartialObjectMetadata {
	object, _ := current.(*metav1.PartialObjectMetadata)

	return object
}

// Intact judges by the managed fields.
func (a *Secrets) Intact(es *esv1.ExternalSecret, current client.Object) bool {
	return Intact(es, metadataOf(current))
}

// Frozen judges by the managed fields.
func (a *Secrets) Frozen(es *esv1.ExternalSecret, current client.Object) bool {
	return Frozen(es, metadataOf(current))
}

// Observe gives the metadata of a Secret. Policies that add to one which others
// made have it read from the API server the first time.
func (a *Secrets) Observe(ctx context.Context, es *esv1.ExternalSecret) (client.Object, error) {
	object, err := a.observe(ctx, es)
	if object == nil {
		return nil, err
	}

	return object, err
}

func (a *Secrets) observe(ctx context.Context, es *esv1.ExternalSecret) (*metav1.PartialObjectMetadata, error) {
	target := plan.TargetOf(es)
	if target.Creation == esv1.CreationNone {
		return nil, nil //nolint:nilnil // absence is an answer here
	}

	object := secretMetadata(es.Namespace, target.Name)
	err := a.client.Get(ctx, client.ObjectKeyFromObject(object), object)

	switch {
	case err == nil && (target.Replaces() || ours(es, object)):
		return object, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("cannot read the metadata of Secret %q in namespace %q: %w", target.Name, es.Namespace, err)
	case target.Replaces():
		return nil, nil //nolint:nilnil // absence is an answer here
	}

	return a.look(ctx, es.Namespace, target.Name)
}

// look reads a Secret that is not this ExternalSecret's yet: only that tells
// whether it may be written to.
func (a *Secrets) look(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	secret := &corev1.Secret{}
	err := a.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)

	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is an answer here
	case err != nil:
		return nil, fmt.Errorf("cannot read Secret %q in namespace %q: %w", name, namespace, err)
	case plan.ForbiddenType(string(secret.Type)):
		return nil, &OwnershipError{Message: fmt.Sprintf("Secret %q is of type %s, which gives its reader an identity in the cluster: it is never written to", name, secret.Type)}
	}

	object := secretMetadata(namespace, name)
	object.ObjectMeta = secret.ObjectMeta

	return object, nil
}

// Apply makes the Secret be what was rendered.
func (a *Secrets) Apply(ctx context.Context, es *esv1.ExternalSecret, target *render.Target, observed client.Object) (Outcome, error) {
	current := metadataOf(observed)

	if target.Creation == esv1.CreationNone {
		return Outcome{}, nil
	}

	if current == nil && !target.Creates() {
		return Outcome{}, &GoneError{Kind: plan.KindSecret, Name: target.Name}
	}

	if err := foreign(es, target, current, current == nil); err != nil {
		return Outcome{}, err
	}

	var outcome Outcome

	if target.Owns() {
		var err error
		if outcome.Removed, err = a.removeRenamed(ctx, es, target.Name); err != nil {
			return Outcome{}, err
		}
	}

	labels, annotations := metadata(es, target)
	if unchanged(es, target, current, labels, annotations) {
		return outcome, nil
	}

	if err := a.adopt(ctx, current, marker.FieldManager(es.Name)); err != nil {
		return Outcome{}, err
	}

	written, err := a.write(ctx, es, target, current, labels, annotations)
	if err != nil {
		return Outcome{}, err
	}

	outcome.Change = Updated
	if current == nil && !older(written, es) {
		outcome.Change = Created
	}

	if written.ResourceVersion != nil {
		outcome.ResourceVersion = *written.ResourceVersion
	}

	if !target.Replaces() {
		return outcome, nil
	}

	return outcome, a.removeForeignKeys(ctx, es, target, written, &outcome)
}

// older tells whether a Secret was there before the ExternalSecret: such a one
// was taken over, not made. The API server alone sets both times.
func older(written *corev1apply.SecretApplyConfiguration, es *esv1.ExternalSecret) bool {
	if written.ObjectMetaApplyConfiguration == nil || written.CreationTimestamp == nil {
		return false
	}

	return written.CreationTimestamp.Time.Before(es.CreationTimestamp.Time)
}

// foreign refuses a target that another controller owns, where the
// ExternalSecret would be its master.
func foreign(es *esv1.ExternalSecret, target *render.Target, current metav1.Object, absent bool) error {
	if absent || !target.Replaces() {
		return nil
	}

	owner := metav1.GetControllerOf(current)
	if owner == nil || owner.UID == es.UID {
		return nil
	}

	return &OwnershipError{Message: fmt.Sprintf("%s %q is owned by %s %q; name another target in spec.target.name", target.Noun(), current.GetName(), owner.Kind, owner.Name)}
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
	if target.Owns() {
		labels[esv1.LabelOwner] = marker.Owner(es.Namespace, es.Name)
	}

	data, keys := marker.DataHash(target.Data), marker.KeysHash(marker.Keys(target.Data))

	if target.Replaces() {
		annotations[esv1.AnnotationDataHash] = data
		annotations[AnnotationKeysHash] = keys
	} else {
		// Several may add to one Secret: to each its own.
		annotations[mergedAnnotation(es)] = keys + "." + data
	}

	return labels, annotations
}

func unchanged(es *esv1.ExternalSecret, target *render.Target, current *metav1.PartialObjectMetadata, labels, annotations map[string]string) bool {
	if !intact(es, target.Target, current) {
		return false
	}

	mine, _ := ownership(current, marker.FieldManager(es.Name))

	return mine.immutable == target.Immutable &&
		metav1.IsControlledBy(current, es) == target.Owns() &&
		containsAll(current.Finalizers, target.Finalizers) &&
		sameMetadata(mine.labels, current.Labels, labels) && sameMetadata(mine.annotations, current.Annotations, annotations)
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}

// adopt turns what an older operator wrote by Update into what was applied, or
// server-side apply would never remove a key of it.
func (a *Secrets) adopt(ctx context.Context, current *metav1.PartialObjectMetadata, manager string) error {
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

// defaultType of a Secret that is made.
const defaultType = string(corev1.SecretTypeOpaque)

func (a *Secrets) write(
	ctx context.Context, es *esv1.ExternalSecret, target *render.Target, current *metav1.PartialObjectMetadata, labels, annotations map[string]string,
) (*corev1apply.SecretApplyConfiguration, error) {
	secret := corev1apply.Secret(target.Name, es.Namespace).
		WithLabels(labels).
		WithAnnotations(annotations).
		WithFinalizers(target.Finalizers...).
		WithData(target.Data)

	if target.Owns() {
		secret.WithOwnerReferences(metav1apply.OwnerReference().
			WithAPIVersion(esv1.GroupVersion.String()).WithKind(esv1.ExternalSecretKind).
			WithName(es.Name).WithUID(es.UID).WithController(true).WithBlockOwnerDeletion(true))
	}

	secretType := target.Type

	switch {
	case current == nil || target.Replaces():
		if secretType == "" {
			secretType = defaultType
		}
	default:
		// Without it, a target that is gone would be made.
		secret.WithUID(current.UID)
	}

	if secretType != "" {
		secret.WithType(corev1.SecretType(secretType))
	}

	if target.Immutable {
		secret.WithImmutable(true)
	}

	err := a.client.Apply(ctx, secret, client.FieldOwner(marker.FieldManager(es.Name)), client.ForceOwnership)
	if err != nil {
		return nil, writeError(target, secretType, err)
	}

	return secret, nil
}

// removeForeignKeys removes what the target holds besides what was applied:
// the ExternalSecret alone says what is in it.
func (a *Secrets) removeForeignKeys(
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

// Delete deletes the Secret.
func (a *Secrets) Delete(ctx context.Context, es *esv1.ExternalSecret, observed client.Object) (Outcome, error) {
	current := metadataOf(observed)
	if current == nil {
		return Outcome{}, nil
	}

	return remove(ctx, a.client, es, plan.KindSecret, current)
}

// remove deletes a target that the ExternalSecret owns.
func remove(ctx context.Context, c client.Client, es *esv1.ExternalSecret, noun string, current client.Object) (Outcome, error) {
	if current.GetDeletionTimestamp() != nil {
		return Outcome{}, nil
	}

	if !metav1.IsControlledBy(current, es) {
		return Outcome{}, &OwnershipError{Message: fmt.Sprintf(
			"the stores have nothing for %s %q any more, and it is not deleted: the ExternalSecret does not own it (deletionPolicy Delete goes with creationPolicy Owner)", noun, current.GetName())}
	}

	if err := c.Delete(ctx, current, exactly(current)); client.IgnoreNotFound(err) != nil {
		return Outcome{}, fmt.Errorf("cannot delete %s %q: %w", noun, current.GetName(), err)
	}

	return Outcome{Change: Deleted}, nil
}

// exactly lets a request go to the object as it was seen, and to no other.
func exactly(object client.Object) client.Preconditions {
	uid, version := object.GetUID(), object.GetResourceVersion()

	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

// removeRenamed deletes Secrets that the ExternalSecret owns under another
// name than its target's.
func (a *Secrets) removeRenamed(ctx context.Context, es *esv1.ExternalSecret, name string) ([]string, error) {
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

		if err := a.client.Delete(ctx, secretMetadata(old.Namespace, old.Name), exactly(old)); client.IgnoreNotFound(err) != nil {
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
