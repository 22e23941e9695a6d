package externalsecret

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/objectwatch"
)

const (
	// firstWatch is how long the first list of a kind may take before its want is
	// an error.
	firstWatch = 10 * time.Second
	// informerRetry is how soon a kind is tried again that the cluster does not
	// know.
	informerRetry = 10 * time.Second
)

// errUnlisted says that a kind's objects could not be listed. The API server's
// reason is in the log.
var errUnlisted = errors.New("the API server has not listed its objects")

// kinds watches targets that are no Secrets: each kind as long as an
// ExternalSecret names it, and only objects that carry the label of those that
// are managed.
type kinds struct {
	cache cache.Cache
	// known is called with those who want a kind, when its objects are known.
	known func(...types.NamespacedName)
	now   func() time.Time

	running sync.WaitGroup

	mu         sync.Mutex
	stopped    bool
	controller controller.Controller
	events     handler.TypedEventHandler[*unstructured.Unstructured, reconcile.Request]
	watched    map[schema.GroupVersionKind]*kind
	wanted     map[types.NamespacedName]schema.GroupVersionKind
	wanting    map[schema.GroupVersionKind]map[types.NamespacedName]bool
}

type kind struct {
	known bool
	began time.Time
	stop  context.CancelFunc
}

func newKinds(mgr manager.Manager, known func(...types.NamespacedName)) (*kinds, error) {
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

	k := kindsOf(managed, known)

	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		k.end()

		return nil
	})); err != nil {
		return nil, fmt.Errorf("cannot watch generic targets: %w", err)
	}

	return k, nil
}

func kindsOf(managed cache.Cache, known func(...types.NamespacedName)) *kinds {
	return &kinds{
		cache: managed, known: known, now: time.Now,
		watched: map[schema.GroupVersionKind]*kind{}, wanted: map[types.NamespacedName]schema.GroupVersionKind{},
		wanting: map[schema.GroupVersionKind]map[types.NamespacedName]bool{},
	}
}

// begin gives changes of targets to a controller.
func (k *kinds) begin(c controller.Controller, events handler.TypedEventHandler[*unstructured.Unstructured, reconcile.Request]) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.controller, k.events = c, events
}

// end ends all watches.
func (k *kinds) end() {
	k.mu.Lock()
	k.stopped = true

	for _, watched := range k.watched {
		watched.stop()
	}

	k.mu.Unlock()
	k.running.Wait()
}

// want makes a kind the one that an ExternalSecret names; none is the empty
// one. A kind that nobody names any more is no longer watched.
func (k *kinds) want(who types.NamespacedName, gvk schema.GroupVersionKind) {
	k.mu.Lock()
	defer k.mu.Unlock()

	former := k.wanted[who]
	if former == gvk {
		return
	}

	delete(k.wanted, who)

	if !gvk.Empty() {
		k.wanted[who] = gvk

		if k.wanting[gvk] == nil {
			k.wanting[gvk] = map[types.NamespacedName]bool{}
		}

		k.wanting[gvk][who] = true
	}

	delete(k.wanting[former], who)

	if former.Empty() || len(k.wanting[former]) > 0 {
		return
	}

	delete(k.wanting, former)

	if watched, ok := k.watched[former]; ok {
		watched.stop()
		delete(k.watched, former)
		k.remove(former)
	}
}

// remove ends the informer of a kind.
func (k *kinds) remove(gvk schema.GroupVersionKind) {
	// It fails for what the scheme does not know, and it knows all that is
	// unstructured.
	_ = k.cache.RemoveInformer(context.Background(), ofKind(gvk))
}

func ofKind(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)

	return object
}

// watch begins to watch a kind that somebody wants, unless that is done
// already. It does not wait for the kind's objects to be known: what the
// operator may not list would keep every worker waiting. At first the error is a
// objectwatch.ErrPending.
func (k *kinds) watch(_ context.Context, gvk schema.GroupVersionKind) error {
	k.mu.Lock()
	defer k.mu.Unlock()

	watched, ok := k.watched[gvk]
	if !ok && !k.stopped {
		ctx, stop := context.WithCancel(context.Background())
		watched = &kind{began: k.now(), stop: stop}
		k.watched[gvk] = watched

		k.running.Go(func() { k.look(ctx, gvk, watched) })
	}

	switch {
	case watched == nil, !watched.known && k.now().Sub(watched.began) < firstWatch:
		return objectwatch.ErrPending
	case !watched.known:
		return errUnlisted
	default:
		return nil
	}
}

// look waits until the objects of a kind are known, however long that takes.
func (k *kinds) look(ctx context.Context, gvk schema.GroupVersionKind, watched *kind) {
	object := ofKind(gvk)

	for {
		_, err := k.cache.GetInformer(ctx, object)
		if err == nil && ctx.Err() == nil {
			break
		}

		select {
		case <-ctx.Done():
			k.dropped(gvk)

			return
		case <-time.After(informerRetry):
		}
	}

	k.mu.Lock()

	if ctx.Err() != nil {
		k.mu.Unlock()
		k.dropped(gvk)

		return
	}

	// It only says that sources are started, which this one does by itself.
	if err := k.controller.Watch(source.Kind(k.cache, object, k.events)); err == nil {
		watched.known = true
	}

	names := slices.Collect(maps.Keys(k.wanting[gvk]))
	k.mu.Unlock()
	k.known(names...)
}

// dropped ends an informer that came into being after its kind was dropped.
func (k *kinds) dropped(gvk schema.GroupVersionKind) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if _, again := k.watched[gvk]; !again {
		k.remove(gvk)
	}
}
