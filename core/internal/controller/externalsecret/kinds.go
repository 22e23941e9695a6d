package externalsecret

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// kinds watches targets that are no Secrets: each kind from the moment that an
// ExternalSecret first names it, and only objects that carry the label of those
// that are managed.
type kinds struct {
	cache cache.Cache

	mu         sync.Mutex
	watched    map[schema.GroupVersionKind]bool
	controller controller.Controller
	requests   func(context.Context, client.Object) []reconcile.Request
}

func newKinds(mgr manager.Manager) (*kinds, error) {
	managed, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector:        labels.SelectorFromSet(labels.Set{esv1.LabelManaged: esv1.LabelManagedValue}),
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a cache of generic targets: %w", err)
	}

	if err := mgr.Add(managed); err != nil {
		return nil, fmt.Errorf("cannot run the cache of generic targets: %w", err)
	}

	return &kinds{cache: managed, watched: map[schema.GroupVersionKind]bool{}}, nil
}

// wake makes changes of targets wake a controller's objects.
func (k *kinds) wake(c controller.Controller, requests func(context.Context, client.Object) []reconcile.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.controller, k.requests = c, requests
}

// watch begins to watch a kind, unless that is done already, and returns when
// its objects are known.
func (k *kinds) watch(ctx context.Context, gvk schema.GroupVersionKind) error {
	k.mu.Lock()
	known := k.watched[gvk]
	k.mu.Unlock()

	if known {
		return nil
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)

	ctx, cancel := context.WithTimeout(ctx, firstWatch)
	defer cancel()

	// Without the lock: a kind that may not be listed must not hold up others.
	if _, err := k.cache.GetInformer(ctx, object); err != nil {
		return err
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	if k.watched[gvk] {
		return nil
	}

	enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, object *unstructured.Unstructured) []reconcile.Request {
		return k.requests(ctx, object)
	})

	if err := k.controller.Watch(source.Kind(k.cache, object, enqueue)); err != nil {
		return err
	}

	k.watched[gvk] = true

	return nil
}
