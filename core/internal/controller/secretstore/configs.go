package secretstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/internal/subscription"
)

// Configs watches the metadata of provider configs: each kind from the moment
// that a store first names it. The spec of a config is its provider's business
// and is never read here.
type Configs struct {
	cache   cache.Cache
	mapper  meta.RESTMapper
	watches *subscription.Watches[schema.GroupVersionKind, struct{}, *configWatch]

	mu            sync.Mutex
	subscriptions map[schema.GroupVersionKind]*subscription.Subscription[schema.GroupVersionKind, struct{}, *configWatch]
	controllers   map[string]controller.Controller
}

// configWatch is the state of a kind's watch: started is closed when its objects
// are known, or err says why they are not.
type configWatch struct {
	started chan struct{}
	err     error
	until   time.Time
}

var _ resolver.Configs = (*Configs)(nil)

const (
	// startTimeout bounds the first list of a kind.
	startTimeout = 10 * time.Second
	// maxWait is how long a worker waits for the first list of a kind that another
	// worker waits for. That takes milliseconds where nothing is wrong; a kind
	// that may not be listed must not block all workers.
	maxWait = time.Second
	// failurePause is how long a kind that cannot be watched is not tried again.
	failurePause = 30 * time.Second
)

// errStarting means that the watch of a kind has not listed anything yet.
var errStarting = errors.New("its watch is just starting")

// NewConfigs watches nothing yet.
func NewConfigs(c cache.Cache, mapper meta.RESTMapper) *Configs {
	w := &Configs{
		cache: c, mapper: mapper, controllers: map[string]controller.Controller{},
		subscriptions: map[schema.GroupVersionKind]*subscription.Subscription[schema.GroupVersionKind, struct{}, *configWatch]{},
	}
	w.watches = subscription.New(subscription.Options[schema.GroupVersionKind, struct{}, *configWatch]{
		New: func(schema.GroupVersionKind) *configWatch { return &configWatch{started: make(chan struct{})} },
		Run: w.run,
	})

	return w
}

// Start returns when ctx has ended and all watches with it.
func (w *Configs) Start(ctx context.Context) error {
	<-ctx.Done()
	w.watches.Stop()

	return nil
}

// notify makes changes of configs enqueue the stores of a kind.
func (w *Configs) notify(kind string, c controller.Controller) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.controllers[kind] = c
}

// Watch starts to watch a kind, unless it is watched already, and returns when
// its objects are known. A kind that the cluster does not have is a NoMatch
// error.
func (w *Configs) Watch(ctx context.Context, gvk schema.GroupVersionKind) error {
	// A kind that is not found is looked up each time: a provider's CRDs may be
	// installed after its stores.
	if _, watched := w.watches.Watch(gvk); !watched {
		mapping, err := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return err
		}

		if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			return fmt.Errorf("%s of %s is cluster-scoped: a provider config is namespaced", gvk.Kind, gvk.GroupVersion())
		}
	}

	state, first := w.subscribe(gvk)
	if state == nil {
		return errors.New("the operator is stopping")
	}

	wait := maxWait
	if first {
		wait = startTimeout
	}

	timer := time.NewTimer(wait)
	defer timer.Stop()

	select {
	case <-state.started:
	case <-timer.C:
		return errStarting
	case <-ctx.Done():
		return ctx.Err()
	}

	if state.err != nil && time.Now().After(state.until) {
		w.unsubscribe(gvk, state)
	}

	return state.err
}

// subscribe returns the watch of a kind, nil after the end, and reports whether
// this call has started it.
func (w *Configs) subscribe(gvk schema.GroupVersionKind) (state *configWatch, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if first = w.subscriptions[gvk] == nil; first {
		w.subscriptions[gvk] = w.watches.Subscribe(struct{}{})
		w.subscriptions[gvk].Replace(gvk)
	}

	state, _ = w.watches.Watch(gvk)

	return state, first
}

// unsubscribe ends a watch that has failed, so that the next Watch starts
// another.
func (w *Configs) unsubscribe(gvk schema.GroupVersionKind, failed *configWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if state, _ := w.watches.Watch(gvk); state == failed {
		w.subscriptions[gvk].Close()
		delete(w.subscriptions, gvk)
	}
}

// run watches a kind until the operator stops, or until it is unsubscribed after
// a failure.
func (w *Configs) run(ctx context.Context, gvk schema.GroupVersionKind, state *configWatch) {
	if state.err = w.start(ctx, gvk); state.err != nil {
		state.until = time.Now().Add(failurePause)
	}

	close(state.started)
	<-ctx.Done()
}

// start lists a kind, and makes changes of its objects enqueue the stores that
// use them.
func (w *Configs) start(ctx context.Context, gvk schema.GroupVersionKind) error {
	listing, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	if _, err := w.cache.GetInformer(listing, metadataOf(gvk)); err != nil {
		// It would retry, and log, for ever.
		_ = w.cache.RemoveInformer(context.WithoutCancel(ctx), metadataOf(gvk))

		mapping, unknown := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if unknown != nil {
			return unknown
		}

		return fmt.Errorf("the watch does not start; does the operator's role allow list and watch of %s? %w", mapping.Resource.Resource, err)
	}

	w.mu.Lock()
	controllers := maps.Clone(w.controllers)
	w.mu.Unlock()

	for kind, c := range controllers {
		enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, config *metav1.PartialObjectMetadata) []reconcile.Request {
			return storesOf(ctx, w.cache, kind, nil, client.MatchingFields{indexConfig: configName(gvk, config.Namespace, config.Name)})
		})

		if err := c.Watch(source.Kind(w.cache, metadataOf(gvk), enqueue, predicate.TypedGenerationChangedPredicate[*metav1.PartialObjectMetadata]{})); err != nil {
			return fmt.Errorf("cannot watch: %w", err)
		}
	}

	return nil
}

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)

	return object
}
