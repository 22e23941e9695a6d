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

	"github.com/external-secrets/eso/core/internal/compat"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
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
	// Deleted: the target is deleted.
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
// another client, or cannot become what it should be. Only a change of an object
// ends it.
type OwnershipError struct{ Message string }

// Error gives the message.
func (e *OwnershipError) Error() string { return e.Message }

// GoneError says that a target is no longer what was seen: it has been deleted,
// or another client was faster.
type GoneError struct{ Kind, Name string }

// Error names the target.
func (e *GoneError) Error() string {
	return fmt.Sprintf("%s %q is no longer what it was", e.Kind, e.Name)
}

// Writer writes targets of some kind. current is what Observe gave.
type Writer interface {
	// Observe gives the target as far as the policies need to know it; nil
	// where there is none.
	Observe(ctx context.Context, es *esv1.ExternalSecret) (client.Object, error)
	// Intact reports whether the target is as the operator left it, as far as its
	// policy cares.
	Intact(es *esv1.ExternalSecret, current client.Object) bool
	// Frozen reports whether the target is there and immutable, as it should be.
	Frozen(es *esv1.ExternalSecret, current client.Object) bool
	// Apply applies what was rendered to the target.
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

// NewSecrets returns a writer. c reads the metadata of managed Secrets from a
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

// Observe gives the metadata of a Secret. Where the ExternalSecret has not
// written to it yet, it is read from the API server, unless that is to be the
// Secret's owner: the API server lets a Secret have only one.
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
	case target.Owns():
		return nil, nil //nolint:nilnil // absence is an answer here
	}

	return a.look(ctx, es.Namespace, target.Name)
}

// look reads a Secret that is not this ExternalSecret's yet: only that shows
// whether it may be written to.
func (a *Secrets) look(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	secret, err := a.read(ctx, namespace, name)
	if secret == nil {
		return nil, err
	}

	object := secretMetadata(namespace, name)
	object.ObjectMeta = secret.ObjectMeta

	return object, nil
}

// read reads a whole Secret, nil where there is none, and refuses one that is
// never written to.
func (a *Secrets) read(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := a.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)

	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is an answer here
	case err != nil:
		return nil, fmt.Errorf("cannot read Secret %q in namespace %q: %w", name, namespace, err)
	case plan.ForbiddenType(string(secret.Type)):
		return nil, &OwnershipError{Message: fmt.Sprintf("Secret %q is of type %s, which gives its reader an identity in the cluster: it is never written to", name, secret.Type)}
	default:
		return secret, nil
	}
}

// Apply applies what was rendered to the Secret.
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

	outcome, err := a.replace(ctx, es, target, current)
	if err != nil || !target.Owns() {
		return outcome, err
	}

	// Not before the target exists: users of the former one must not be
	// left with neither.
	outcome.Removed, err = a.removeRenamed(ctx, es, target.Name)

	return outcome, err
}

// replace writes the Secret, unless it is already what it should be.
func (a *Secrets) replace(ctx context.Context, es *esv1.ExternalSecret, target *render.Target, current *metav1.PartialObjectMetadata) (Outcome, error) {
	labels, annotations := metadata(es, target)

	// The target is already applied, for example by an operator that was killed
	// after the write.
	if unchanged(es, target, current, labels, annotations) {
		foreign := foreignKeys(es, target.Target, current)
		if len(foreign) == 0 {
			return Outcome{}, nil
		}

		version, err := a.removeKeys(ctx, es, target.Name, foreign, current.UID, current.ResourceVersion)

		return Outcome{Change: Updated, ResourceVersion: version}, err
	}

	if current != nil {
		if err := adopt(ctx, a.client, current, compat.FieldManager(es.Name), compat.FieldManager(es.Name)); err != nil {
			return Outcome{}, err
		}
	}

	written, err := a.write(ctx, es, target, current, labels, annotations)
	if err != nil {
		return Outcome{}, err
	}

	outcome := Outcome{Change: Updated}
	if current == nil && !older(written, es) {
		outcome.Change = Created
	}

	var uid types.UID
	if written.ObjectMetaApplyConfiguration != nil && written.UID != nil && written.ResourceVersion != nil {
		uid, outcome.ResourceVersion = *written.UID, *written.ResourceVersion
	}

	foreign := slices.Collect(maps.Keys(written.Data))
	foreign = slices.DeleteFunc(foreign, func(key string) bool { _, wanted := target.Data[key]; return wanted })

	if !target.Replaces() || len(foreign) == 0 {
		return outcome, nil
	}

	outcome.ResourceVersion, err = a.removeKeys(ctx, es, target.Name, foreign, uid, outcome.ResourceVersion)

	return outcome, err
}

// older reports whether a Secret was there before the ExternalSecret: such a one
// was taken over, not created. Only the API server sets both times.
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
		labels[esv1.LabelOwner] = compat.Owner(es.Namespace, es.Name)
	}

	data, keys := compat.DataHash(target.Data), compat.KeysHash(compat.Keys(target.Data))

	// The type is no metadata: without a trace of it, one that changes would not
	// be missed.
	wanted := ""
	if target.Type != "" {
		wanted = "." + compat.Digest(target.Type)
	}

	if target.Replaces() {
		annotations[esv1.AnnotationDataHash] = data
		annotations[AnnotationKeysHash] = keys + wanted
	} else {
		// Several may add to one Secret: to each its own.
		annotations[mergedAnnotation(es)] = keys + "." + data + wanted
	}

	return labels, annotations
}

// unchanged reports whether nothing has to be applied.
func unchanged(es *esv1.ExternalSecret, target *render.Target, current *metav1.PartialObjectMetadata, labels, annotations map[string]string) bool {
	if !applied(es, target.Target, current) {
		return false
	}

	mine, _ := ownership(current, compat.FieldManager(es.Name))

	return mine.immutable == target.Immutable &&
		metav1.IsControlledBy(current, es) == target.Owns() &&
		sameSet(mine.finalizers, target.Finalizers) &&
		sameMetadata(mine.labels, current.Labels, labels) && sameMetadata(mine.annotations, current.Annotations, annotations)
}

// sameSet reports whether two lists hold the same, whatever their order.
func sameSet(a, b []string) bool { return sets.New(a...).Equal(sets.New(b...)) }

// adopt turns what an older operator wrote by Update, as the manager from, into
// what was applied, or server-side apply would never remove a field of it.
func adopt(ctx context.Context, c client.Client, current client.Object, from, manager string) error {
	if !slices.ContainsFunc(current.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == from && entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == ""
	}) {
		return nil
	}

	noun, name := current.GetObjectKind().GroupVersionKind().Kind, current.GetName()

	patch, err := csaupgrade.UpgradeManagedFieldsPatch(current, sets.New(from), manager)
	if err != nil {
		return fmt.Errorf("cannot adopt %s %q: %w", noun, name, err)
	}

	if patch == nil {
		return nil
	}

	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: current.GetNamespace(), Name: name}}
	object.SetGroupVersionKind(current.GetObjectKind().GroupVersionKind())

	if err := c.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("cannot adopt %s %q: %w", noun, name, scrub(err))
	}

	return nil
}

// defaultType of a Secret that is created.
const defaultType = string(corev1.SecretTypeOpaque)

// write applies the Secret. One that is there with another type keeps it,
// unless the template asks for one: a Secret's type cannot change.
func (a *Secrets) write(
	ctx context.Context, es *esv1.ExternalSecret, target *render.Target, current *metav1.PartialObjectMetadata, labels, annotations map[string]string,
) (*corev1apply.SecretApplyConfiguration, error) {
	var uid types.UID

	secretType := target.Type

	if current != nil && !target.Owns() {
		// Without it, a target that is gone would be made, and one that has come
		// in its place would be written to whosever it is.
		uid = current.UID
	}

	if secretType == "" && (current == nil || target.Replaces()) {
		secretType = defaultType
	}

	written, err := a.apply(ctx, es, target, labels, annotations, secretType, uid)
	if err == nil || target.Type != "" || !otherType(err) {
		return written, writeError(target, secretType, err)
	}

	there, readErr := a.read(ctx, es.Namespace, target.Name)

	switch {
	case readErr != nil:
		return nil, readErr
	case there == nil:
		return nil, &GoneError{Kind: plan.KindSecret, Name: target.Name}
	}

	written, err = a.apply(ctx, es, target, labels, annotations, string(there.Type), there.UID)

	return written, writeError(target, string(there.Type), err)
}

// apply applies the Secret with a type, unless that is empty, and only to the
// Secret of a UID, unless that is.
func (a *Secrets) apply(
	ctx context.Context, es *esv1.ExternalSecret, target *render.Target, labels, annotations map[string]string, secretType string, uid types.UID,
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

	if uid != "" {
		secret.WithUID(uid)
	}

	if secretType != "" {
		secret.WithType(corev1.SecretType(secretType))
	}

	if target.Immutable {
		secret.WithImmutable(true)
	}

	return secret, a.client.Apply(ctx, secret, client.FieldOwner(compat.FieldManager(es.Name)), client.ForceOwnership)
}

// removeKeys removes what a Secret holds besides what was applied: the
// ExternalSecret alone says what is in it. Only of the Secret as it was seen:
// another that has come in its place meanwhile is not the ExternalSecret's.
func (a *Secrets) removeKeys(ctx context.Context, es *esv1.ExternalSecret, name string, keys []string, uid types.UID, version string) (string, error) {
	gone := map[string]any{}
	for _, key := range keys {
		gone[key] = nil
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": version}, "data": gone})
	if err != nil {
		return "", fmt.Errorf("cannot remove foreign keys of Secret %q: %w", name, err)
	}

	object := secretMetadata(es.Namespace, name)

	err = a.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(compat.FieldManager(es.Name)))

	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return "", &GoneError{Kind: plan.KindSecret, Name: name}
	case err != nil:
		return "", fmt.Errorf("cannot remove foreign keys of Secret %q: %w", name, scrub(err))
	default:
		return object.ResourceVersion, nil
	}
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

	if err := a.client.List(ctx, list, client.InNamespace(es.Namespace), client.MatchingFields{IndexOwner: compat.Owner(es.Namespace, es.Name)}); err != nil {
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
