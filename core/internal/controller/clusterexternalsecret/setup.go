package clusterexternalsecret

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// workers bounds the ClusterExternalSecrets that are brought up to date at the
// same time.
const workers = 4

// Indexes of the cache.
const (
	// indexOwner finds ExternalSecrets by the UID of the ClusterExternalSecret
	// that controls them.
	indexOwner = "clusterexternalsecret"
	// indexChild indexes ClusterExternalSecrets by the name of their ExternalSecrets.
	indexChild = "child"
	// indexFinalizer finds Namespaces by the ClusterExternalSecret for which
	// an older operator left a finalizer.
	indexFinalizer = "clusterexternalsecret-finalizer"
)

// SetupWithManager registers the controller, its indexes and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) error {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))

	indexer := mgr.GetFieldIndexer()

	if err := indexer.IndexField(ctx, &esv1.ExternalSecret{}, indexOwner, byOwner); err != nil {
		return fmt.Errorf("cannot index ExternalSecrets by owner: %w", err)
	}

	if err := indexer.IndexField(ctx, &esv1.ClusterExternalSecret{}, indexChild, byChild); err != nil {
		return fmt.Errorf("cannot index ClusterExternalSecrets by the name of their ExternalSecrets: %w", err)
	}

	if err := indexer.IndexField(ctx, namespace, indexFinalizer, byFinalizer); err != nil {
		return fmt.Errorf("cannot index Namespaces by finalizer: %w", err)
	}

	err := builder.ControllerManagedBy(mgr).
		Named("clusterexternalsecret").
		For(&esv1.ClusterExternalSecret{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
			predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetDeletionTimestamp() != nil }),
		))).
		Watches(&esv1.ExternalSecret{}, handler.EnqueueRequestsFromMapFunc(r.ofChild), builder.WithPredicates(childChanged())).
		Watches(namespace, r.ofNamespace()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("cannot set up the ClusterExternalSecret controller: %w", err)
	}

	return nil
}

// owner is the ClusterExternalSecret that controls an object; nil where none
// does.
func owner(object client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != esv1.ClusterExternalSecretKind || !strings.HasPrefix(owner.APIVersion, esv1.Group+"/") {
		return nil
	}

	return owner
}

func byOwner(object client.Object) []string {
	if owner := owner(object); owner != nil {
		return []string{string(owner.UID)}
	}

	return nil
}

func byChild(object client.Object) []string {
	ces, ok := object.(*esv1.ClusterExternalSecret)
	if !ok {
		return nil
	}

	return []string{childName(ces)}
}

// byFinalizer names the ClusterExternalSecrets for which a Namespace carries a
// finalizer.
func byFinalizer(object client.Object) []string {
	var names []string

	for _, finalizer := range object.GetFinalizers() {
		if name, ok := strings.CutPrefix(finalizer, esv1.FinalizerNamespacePrefix); ok {
			names = append(names, name)
		}
	}

	return names
}

// childChanged ignores what an ExternalSecret reports about its own syncs.
func childChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew

		return before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID() ||
			(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
			!equality.Semantic.DeepEqual(before.GetLabels(), after.GetLabels()) ||
			!equality.Semantic.DeepEqual(before.GetAnnotations(), after.GetAnnotations()) ||
			!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
	}}
}

// ofChild finds the ClusterExternalSecret that created an ExternalSecret, and
// those that would create one of its name in its namespace.
func (r *Reconciler) ofChild(ctx context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	if owner := owner(object); owner != nil {
		requests = append(requests, requestFor(owner.Name))
	}

	var list esv1.ClusterExternalSecretList
	// A cache that cannot be read has been stopped.
	if err := r.client.List(ctx, &list, client.MatchingFields{indexChild: object.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return requests
	}

	for i := range list.Items {
		if request := requestFor(list.Items[i].Name); !slices.Contains(requests, request) {
			requests = append(requests, request)
		}
	}

	return requests
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// ofNamespace wakes the ClusterExternalSecrets to which a change of a Namespace
// makes a difference, and those for which it carries a finalizer, be they gone
// or not.
func (r *Reconciler) ofNamespace() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

	finalizers := func(object client.Object, q queue) {
		for _, name := range byFinalizer(object) {
			q.Add(requestFor(name))
		}
	}

	matching := func(ctx context.Context, q queue, differs func(*selection) bool) {
		var list esv1.ClusterExternalSecretList
		// A cache that cannot be read has been stopped.
		if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return
		}

		for i := range list.Items {
			selected, err := newSelection(&list.Items[i].Spec)
			if err == nil && differs(selected) {
				q.Add(requestFor(list.Items[i].Name))
			}
		}
	}

	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			finalizers(e.Object, q)

			// At the start everything is looked at in any case.
			if !e.IsInInitialList {
				matching(ctx, q, func(s *selection) bool { return s.matches(e.Object) })
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			finalizers(e.ObjectNew, q)

			if (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
				!equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				matching(ctx, q, func(s *selection) bool { return s.matches(e.ObjectOld) != s.matches(e.ObjectNew) })
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			matching(ctx, q, func(s *selection) bool { return s.matches(e.Object) })
		},
	}
}
