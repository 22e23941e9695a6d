package secretstore

import (
	"context"
	"errors"
	"fmt"
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
)

// Configs watches the metadata of provider configs: each kind from the moment
// that a store first names it. What a config holds is its provider's business
// and is never read here.
type Configs struct {
	cache  cache.Cache
	mapper meta.RESTMapper

	mu      sync.Mutex
	watched map[schema.GroupVersionKind]bool
	// beginning are the kinds whose first watch somebody waits for, failed those
	// that cannot be watched.
	beginning   map[schema.GroupVersionKind]chan struct{}
	failed      map[schema.GroupVersionKind]failure
	controllers map[string]controller.Controller
}

var _ resolver.Configs = (*Configs)(nil)

// longestWait is how long a worker waits for another's first watch of a kind,
// which takes milliseconds where nothing is wrong.
const longestWait = time.Second

// failurePause is how long a kind that cannot be watched is not tried again.
const failurePause = 30 * time.Second

type failure struct {
	err   error
	until time.Time
}

// NewConfigs watches nothing yet.
func NewConfigs(c cache.Cache, mapper meta.RESTMapper) *Configs {
	return &Configs{cache: c, mapper: mapper, watched: map[schema.GroupVersionKind]bool{}, beginning: map[schema.GroupVersionKind]chan struct{}{}, failed: map[schema.GroupVersionKind]failure{}, controllers: map[string]controller.Controller{}}
}

// notify makes changes of configs wake a kind's stores.
func (w *Configs) notify(kind string, c controller.Controller) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.controllers[kind] = c
}

// Watch begins to watch a kind, unless that is done already, and returns when
// its objects are known. A kind that the cluster does not have is a NoMatch
// error.
func (w *Configs) Watch(ctx context.Context, gvk schema.GroupVersionKind) error {
	known, wait, err := w.known(gvk)
	if known {
		return err
	}

	if wait != nil {
		select {
		case <-wait:
			return w.Watch(ctx, gvk)
		case <-time.After(longestWait):
			return errBeginning
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	err = w.begin(ctx, gvk)

	w.mu.Lock()
	defer w.mu.Unlock()

	close(w.beginning[gvk])
	delete(w.beginning, gvk)

	if err == nil || meta.IsNoMatchError(err) {
		delete(w.failed, gvk)
	} else {
		w.failed[gvk] = failure{err: err, until: time.Now().Add(failurePause)}
	}

	return err
}

// begin begins to watch a kind.
func (w *Configs) begin(ctx context.Context, gvk schema.GroupVersionKind) error {
	mapping, err := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}

	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return fmt.Errorf("%s of %s is cluster-scoped: a provider config is namespaced", gvk.Kind, gvk.GroupVersion())
	}

	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(gvk)

	// Without the lock: a kind that may not be listed must not hold up others.
	if _, err := w.cache.GetInformer(ctx, object); err != nil {
		// It would try, and log, for ever.
		_ = w.cache.RemoveInformer(context.WithoutCancel(ctx), object)

		return fmt.Errorf("the watch does not start; does the operator's role allow list and watch of %s? %w", mapping.Resource.Resource, err)
	}

	return w.wake(gvk)
}

// known tells whether a kind is watched, or has failed of late; else, what to
// wait for where somebody begins to watch it, and without that it is the
// caller's to begin.
func (w *Configs) known(gvk schema.GroupVersionKind) (known bool, wait chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.watched[gvk] {
		return true, nil, nil
	}

	if last, ok := w.failed[gvk]; ok && time.Now().Before(last.until) {
		return true, nil, last.err
	}

	if wait, ok := w.beginning[gvk]; ok {
		return false, wait, nil
	}

	w.beginning[gvk] = make(chan struct{})

	return false, nil, nil
}

// errBeginning says that a kind's first watch has not answered yet.
var errBeginning = errors.New("its watch is just beginning")

// wake makes a change of a config wake the stores that use it.
func (w *Configs) wake(gvk schema.GroupVersionKind) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.watched[gvk] {
		return nil
	}

	for kind, c := range w.controllers {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(gvk)

		enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, config *metav1.PartialObjectMetadata) []reconcile.Request {
			return storesOf(ctx, w.cache, kind, nil, client.MatchingFields{indexConfig: configName(gvk, config.Namespace, config.Name)})
		})

		if err := c.Watch(source.Kind(w.cache, object, enqueue, predicate.TypedGenerationChangedPredicate[*metav1.PartialObjectMetadata]{})); err != nil {
			return fmt.Errorf("cannot watch: %w", err)
		}
	}

	w.watched[gvk] = true

	return nil
}
