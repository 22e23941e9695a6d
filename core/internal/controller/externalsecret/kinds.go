package externalsecret

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/external-secrets/eso/core/internal/subscription"
	"github.com/external-secrets/eso/core/internal/sync/objectwatch"
)

const (
	// listTimeout is how long the first list of a kind may take before watch
	// returns an error other than objectwatch.ErrPending.
	listTimeout = 10 * time.Second
	// informerRetry is the pause before a kind is tried again that the cluster
	// does not have.
	informerRetry = 10 * time.Second
)

// errUnlisted means that the objects of a kind could not be listed. The API
// server's reason is in the log.
var errUnlisted = errors.New("the API server has not listed its objects")

// kinds watches targets that are no Secrets: each kind as long as an
// ExternalSecret names it, and only objects with the label of managed ones.
type kinds struct {
	cache cache.Cache
	// known is called with the ExternalSecrets of a kind when its objects are
	// known.
	known   func(...types.NamespacedName)
	now     func() time.Time
	watches *subscription.Watches[schema.GroupVersionKind, types.NamespacedName, *kind]

	mu         sync.Mutex
	controller controller.Controller
	events     handler.TypedEventHandler[*unstructured.Unstructured, reconcile.Request]
}

// kindSubscription is the kind that one ExternalSecret names.
type kindSubscription = subscription.Subscription[schema.GroupVersionKind, types.NamespacedName, *kind]

// kind is the state of a kind's watch, which starts when the kind is first
// observed: what is named may not be allowed.
type kind struct {
	observe  func()
	observed chan struct{}

	mu      sync.Mutex
	known   bool
	started time.Time
}

func newKinds(mgr manager.Manager, known func(...types.NamespacedName)) (*kinds, error) {
	managed, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector:        labels.SelectorFromSet(labels.Set{esv1.LabelManaged: esv1.LabelManagedValue}),
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot create a cache of generic targets: %w", err)
	}

	if err := mgr.Add(managed); err != nil {
		return nil, fmt.Errorf("cannot run the cache of generic targets: %w", err)
	}

	k := kindsOf(managed, known)

	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		k.watches.Stop()

		return nil
	})); err != nil {
		return nil, fmt.Errorf("cannot watch generic targets: %w", err)
	}

	return k, nil
}

func kindsOf(managed cache.Cache, known func(...types.NamespacedName)) *kinds {
	k := &kinds{cache: managed, known: known, now: time.Now}
	k.watches = subscription.New(subscription.Options[schema.GroupVersionKind, types.NamespacedName, *kind]{
		New: func(schema.GroupVersionKind) *kind {
			observed := make(chan struct{})

			return &kind{observed: observed, observe: sync.OnceFunc(func() { close(observed) })}
		},
		Run: k.run,
	})

	return k
}

// begin passes changes of targets to a controller.
func (k *kinds) begin(c controller.Controller, events handler.TypedEventHandler[*unstructured.Unstructured, reconcile.Request]) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.controller, k.events = c, events
}

// follow sets the kind that an ExternalSecret refers to; the empty one is none.
func follow(s *kindSubscription, gvk schema.GroupVersionKind) {
	if gvk.Empty() {
		s.Close()
	} else {
		s.Replace(gvk)
	}
}

func ofKind(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)

	return object
}

// watch starts to watch a kind that has subscribers, unless it is watched
// already. It does not wait until the kind's objects are known: kinds that the
// operator may not list would block every worker. Until then the error is
// objectwatch.ErrPending.
func (k *kinds) watch(_ context.Context, gvk schema.GroupVersionKind) error {
	watched, ok := k.watches.Watch(gvk)
	if !ok {
		return objectwatch.ErrPending
	}

	watched.observe()

	watched.mu.Lock()
	defer watched.mu.Unlock()

	if watched.started.IsZero() {
		watched.started = k.now()
	}

	switch {
	case watched.known:
		return nil
	case k.now().Sub(watched.started) < listTimeout:
		return objectwatch.ErrPending
	default:
		return errUnlisted
	}
}

// run watches a kind once it is observed.
func (k *kinds) run(ctx context.Context, gvk schema.GroupVersionKind, watched *kind) {
	select {
	case <-watched.observed:
	case <-ctx.Done():
		return
	}

	object := ofKind(gvk)

	// It fails only for types that the scheme does not have, and unstructured
	// objects need none.
	defer func() { _ = k.cache.RemoveInformer(context.Background(), object) }()

	for {
		if _, err := k.cache.GetInformer(ctx, object); err == nil && ctx.Err() == nil {
			break
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(informerRetry):
		}
	}

	k.mu.Lock()
	// An error means only that the controller starts sources later.
	err := k.controller.Watch(source.Kind(k.cache, object, k.events))
	k.mu.Unlock()

	watched.mu.Lock()
	watched.known = err == nil
	watched.mu.Unlock()

	k.known(k.watches.Subscribers(gvk)...)
	<-ctx.Done()
}
