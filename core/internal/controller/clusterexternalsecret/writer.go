package clusterexternalsecret

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// attempts is how often a write is repeated because the cache was behind.
const attempts = 3

// blockedError says that only a change of an object can help.
type blockedError struct{ message string }

func (e *blockedError) Error() string { return e.message }

// errGone means that the namespace is deleted or being deleted.
var errGone = errors.New("the namespace is deleted or being deleted")

// writer writes ExternalSecrets, each under the precondition that the
// ClusterExternalSecret controls it, or will control it after the write.
type writer struct {
	client client.Client
	direct client.Reader
}

// foreign returns an error for an ExternalSecret that the ClusterExternalSecret does not
// control.
func (c *child) foreign(current *esv1.ExternalSecret) error {
	owner := metav1.GetControllerOf(current)

	switch {
	case owner == nil:
		return &blockedError{fmt.Sprintf("ExternalSecret %q exists and was not created by this ClusterExternalSecret and is not changed; delete it, or set spec.externalSecretName", current.Name)}
	case owner.UID != c.owner.UID:
		return &blockedError{fmt.Sprintf("ExternalSecret %q exists, is controlled by %s %q and is not changed; set spec.externalSecretName", current.Name, owner.Kind, owner.Name)}
	default:
		return nil
	}
}

// write creates or applies the ExternalSecret of a namespace, and returns its
// resource version. current is what the cache has, which the
// ClusterExternalSecret controls; nil where there is none.
//
// A new object is created, not applied: a create fails if another client has
// created the object, while an apply would take it over. An existing object is
// applied under its UID, for the same reason.
func (w *writer) write(ctx context.Context, want *child, namespace string, current *esv1.ExternalSecret) (string, error) {
	var last error

	for range attempts {
		var version string

		if current == nil {
			version, last = w.create(ctx, want, namespace)
		} else {
			version, last = w.change(ctx, want, current)
		}

		if !behind(current, last) {
			return version, explain(want.name, last)
		}

		var err error
		if current, err = w.look(ctx, namespace, want.name); err != nil {
			return "", err
		}

		if current == nil {
			continue
		}

		if err := want.foreign(current); err != nil {
			return "", err
		}

		if want.matches(current) {
			return current.ResourceVersion, nil
		}
	}

	return "", explain(want.name, last)
}

// behind reports whether a write was refused because what the cache showed has
// changed, is gone, or is another one.
func behind(current *esv1.ExternalSecret, err error) bool {
	if current == nil {
		return apierrors.IsAlreadyExists(err)
	}

	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return true
	}

	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return false
	}

	return slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// explain sorts out what the API server refused.
func explain(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return errGone
	case apierrors.IsInvalid(err):
		return &blockedError{fmt.Sprintf("cannot write ExternalSecret %q: %s", name, err)}
	default:
		return fmt.Errorf("cannot write ExternalSecret %q: %w", name, err)
	}
}

// look reads from the API server; nil where there is nothing.
func (w *writer) look(ctx context.Context, namespace, name string) (*esv1.ExternalSecret, error) {
	current := &esv1.ExternalSecret{}
	err := w.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, current)

	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is an answer here
	case err != nil:
		return nil, fmt.Errorf("cannot read ExternalSecret %q: %w", name, err)
	default:
		return current, nil
	}
}

func (w *writer) create(ctx context.Context, want *child, namespace string) (string, error) {
	object := want.object(namespace)
	err := w.client.Create(ctx, object, client.FieldOwner(esv1.FieldManagerClusterExternalSecret))

	return object.ResourceVersion, err
}

func (w *writer) change(ctx context.Context, want *child, current *esv1.ExternalSecret) (string, error) {
	if err := w.adopt(ctx, current); err != nil {
		return "", err
	}

	object, err := want.applied(current)
	if err != nil {
		return "", err
	}

	if err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(esv1.FieldManagerClusterExternalSecret), client.ForceOwnership); err != nil {
		return "", err
	}

	written := &esv1.ExternalSecret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, written); err != nil {
		return "", err
	}

	if equality.Semantic.DeepEqual(want.spec, written.Spec) {
		return written.ResourceVersion, nil
	}

	// Fields that another client has added to the spec belong to that client, and remain after an apply.
	before := written.DeepCopy()
	written.Spec = *want.spec.DeepCopy()
	err = w.client.Patch(ctx, written, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(esv1.FieldManagerClusterExternalSecret))

	return written.ResourceVersion, err
}

// adopt turns what was written by Update into what was applied, or server-side
// apply would never remove a label of it.
func (w *writer) adopt(ctx context.Context, current *esv1.ExternalSecret) error {
	if !handwritten(current.ManagedFields) {
		return nil
	}

	// The object is modified in place, and must not be that of the cache.
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(current.DeepCopy(),
		sets.New(esv1.FieldManagerOlder, esv1.FieldManagerClusterExternalSecret), esv1.FieldManagerClusterExternalSecret)
	if err != nil || patch == nil {
		return err
	}

	object := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: current.Namespace, Name: current.Name}}

	return w.client.Patch(ctx, object, client.RawPatch(types.JSONPatchType, patch))
}

// remove deletes an ExternalSecret that is no longer wanted, and no other that
// has its name by now.
func (w *writer) remove(ctx context.Context, old *esv1.ExternalSecret) error {
	object := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name}}
	err := w.client.Delete(ctx, object, client.Preconditions{UID: &old.UID})

	// A conflict says that the UID is another one.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}

	return fmt.Errorf("cannot delete ExternalSecret %q: %w", old.Name, err)
}

// release removes the finalizer of an older operator from a Namespace: no other
// controller does, and the Namespace could never be deleted.
func (w *writer) release(ctx context.Context, namespace *metav1.PartialObjectMetadata, finalizer string) error {
	after := namespace.DeepCopy()
	if !controllerutil.RemoveFinalizer(after, finalizer) {
		return nil
	}

	// The watch reports a conflict, with the finalizer as it is by then.
	err := w.client.Patch(ctx, after, client.MergeFromWithOptions(namespace, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("cannot take the finalizer %q off Namespace %q: %w", finalizer, namespace.Name, err)
	}

	return nil
}
