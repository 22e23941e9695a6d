package externalsecret

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/apply"
	"github.com/external-secrets/eso/core/internal/sync/objectwatch"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/store"
)

// Indexes of ExternalSecrets in the cache.
const (
	indexStore  = "stores"
	indexTarget = "target"
)

// SetupWithManager registers the controller, its indexes and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager) (err error) {
	if err := r.watchReferences(mgr); err != nil {
		return err
	}

	indexer := mgr.GetFieldIndexer()
	secret := metadataOf(corev1.SchemeGroupVersion.WithKind("Secret"))

	if err := indexer.IndexField(ctx, &esv1.ExternalSecret{}, indexStore, byStore); err != nil {
		return fmt.Errorf("cannot index ExternalSecrets by store: %w", err)
	}

	if err := indexer.IndexField(ctx, &esv1.ExternalSecret{}, indexTarget, byTarget); err != nil {
		return fmt.Errorf("cannot index ExternalSecrets by target: %w", err)
	}

	if err := indexer.IndexField(ctx, secret, apply.IndexOwner, apply.ByOwner); err != nil {
		return fmt.Errorf("cannot index Secrets by owner: %w", err)
	}

	if r.kinds, err = newKinds(mgr, func(names ...types.NamespacedName) { r.enqueue(periodic, names...) }); err != nil {
		return err
	}

	r.manifests = apply.NewManifests(apply.ManifestOptions{
		Client: r.Client, Cached: r.kinds.cache, Direct: r.Direct, Mapper: mgr.GetRESTMapper(), Watch: r.kinds.watch, Allowed: r.options.GenericTargets,
	})

	targets := dependents[client.Object]{of: r.ofTarget, settled: r.settled}

	controlled := builder.ControllerManagedBy(mgr).
		Named("externalsecret").
		Watches(&esv1.ExternalSecret{}, byPriority{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
			predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetDeletionTimestamp() != nil }),
		))).
		Watches(secret, targets).
		WatchesRawSource(source.Func(r.queue.start)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Concurrent})

	for _, resolver := range r.Stores {
		for _, dependency := range resolver.Dependencies() {
			controlled.Watches(dependency.Object, dependents[client.Object]{of: r.referring(dependency.Selectors)}, builder.WithPredicates(dependency.Predicates...))
		}
	}

	built, err := controlled.Build(r)
	if err != nil {
		return fmt.Errorf("cannot set up the ExternalSecret controller: %w", err)
	}

	r.kinds.begin(built, dependents[*unstructured.Unstructured]{
		of: func(ctx context.Context, object *unstructured.Unstructured) []*esv1.ExternalSecret {
			return r.ofTarget(ctx, object)
		},
		settled: func(es *esv1.ExternalSecret, object *unstructured.Unstructured) bool { return r.settled(es, object) },
	})

	return nil
}

// watchReferences watches single objects until the manager stops.
func (r *Reconciler) watchReferences(mgr manager.Manager) error {
	objects, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}

	meta, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("cannot create a client for metadata: %w", err)
	}

	r.objects = objectwatch.New(objects, meta, func(key objectwatch.Key) { r.enqueue(changed, r.objects.Subscribers(key)...) })

	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		r.objects.Stop()
		r.stores.Stop()

		return nil
	})); err != nil {
		return fmt.Errorf("cannot watch what ExternalSecrets refer to: %w", err)
	}

	return nil
}

// StoreRecovered syncs again what refers to a store that answers again.
func (r *Reconciler) StoreRecovered(selector store.Selector) {
	for _, es := range r.selected(context.Background(), selector) {
		r.queue.add(priorityOf(es, periodic), client.ObjectKeyFromObject(es))
	}
}

// enqueue enqueues ExternalSecrets after a change that no watch of the cache
// reports.
func (r *Reconciler) enqueue(otherwise int, names ...types.NamespacedName) {
	for _, name := range names {
		es := &esv1.ExternalSecret{}
		// A deleted one need not be synced, and a cache that cannot be read
		// has been stopped.
		if err := r.Client.Get(context.Background(), name, es); err == nil {
			r.queue.add(priorityOf(es, otherwise), name)
		}
	}
}

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)

	return object
}

// storeKey identifies a store in the index. The namespace of a store is that of
// what refers to it, so that it is no part of the key.
func storeKey(r store.Reference) string { return r.APIVersion + "/" + r.Kind + "/" + r.Name }

func byStore(object client.Object) []string {
	es, ok := object.(*esv1.ExternalSecret)
	if !ok {
		return nil
	}

	var keys []string

	for _, reference := range plan.Stores(es) {
		keys = append(keys, storeKey(reference))
	}

	return keys
}

func byTarget(object client.Object) []string {
	es, ok := object.(*esv1.ExternalSecret)
	if !ok {
		return nil
	}

	target := plan.TargetOf(es)

	return []string{targetName(target.Manifest, target.Name)}
}

// targetName names a target in the index; the kind of a Secret is empty.
func targetName(kind schema.GroupVersionKind, name string) string {
	return kind.Group + "/" + kind.Kind + "/" + name
}

// selected lists the ExternalSecrets that refer to a store.
func (r *Reconciler) selected(ctx context.Context, selector store.Selector) []*esv1.ExternalSecret {
	var options []client.ListOption

	if selector.Namespace != "" {
		options = append(options, client.InNamespace(selector.Namespace))
	}

	if selector.Reference.Name != "" {
		return r.list(ctx, append(options, client.MatchingFields{indexStore: storeKey(selector.Reference)})...)
	}

	return slices.DeleteFunc(r.list(ctx, options...), func(es *esv1.ExternalSecret) bool {
		return !slices.ContainsFunc(plan.Stores(es), func(reference store.Reference) bool {
			return reference.APIVersion == selector.Reference.APIVersion && reference.Kind == selector.Reference.Kind
		})
	})
}

// referring lists the ExternalSecrets that a change of an object concerns, which
// a store's resolver depends on.
func (r *Reconciler) referring(selectors func(client.Object) []store.Selector) func(context.Context, client.Object) []*esv1.ExternalSecret {
	return func(ctx context.Context, object client.Object) []*esv1.ExternalSecret {
		var found []*esv1.ExternalSecret
		for _, selector := range selectors(object) {
			found = append(found, r.selected(ctx, selector)...)
		}

		return found
	}
}

// ofTarget finds the ExternalSecrets whose target an object is, or was.
func (r *Reconciler) ofTarget(ctx context.Context, object client.Object) []*esv1.ExternalSecret {
	kind := object.GetObjectKind().GroupVersionKind()
	if kind.GroupKind() == corev1.SchemeGroupVersion.WithKind("Secret").GroupKind() {
		kind = schema.GroupVersionKind{}
	}

	found := r.list(ctx, client.InNamespace(object.GetNamespace()), client.MatchingFields{indexTarget: targetName(kind, object.GetName())})

	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != esv1.ExternalSecretKind ||
		slices.ContainsFunc(found, func(es *esv1.ExternalSecret) bool { return es.Name == owner.Name }) {
		return found
	}

	former := &esv1.ExternalSecret{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: object.GetNamespace(), Name: owner.Name}, former); err != nil {
		return found // the owner is deleted
	}

	return append(found, former)
}

// settled reports whether a target is as the operator left it.
func (r *Reconciler) settled(es *esv1.ExternalSecret, object client.Object) bool {
	return r.writer(es).Intact(es, object)
}

// list returns ExternalSecrets of the cache, which must not be changed.
func (r *Reconciler) list(ctx context.Context, options ...client.ListOption) []*esv1.ExternalSecret {
	var list esv1.ExternalSecretList
	// A cache that cannot be read has been stopped.
	if err := r.Client.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}

	found := make([]*esv1.ExternalSecret, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}

	return found
}
