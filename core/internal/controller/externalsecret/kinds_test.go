package externalsecret

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/external-secrets/eso/core/internal/sync/objectwatch"
)

var (
	configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	things     = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
)

// informers is a cache whose informers are known when the test says.
type informers struct {
	cache.Cache

	mu      sync.Mutex
	listed  map[schema.GroupVersionKind]chan struct{}
	running []schema.GroupVersionKind
}

func (i *informers) GetInformer(ctx context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	gvk := object.GetObjectKind().GroupVersionKind()

	i.mu.Lock()

	if !slices.Contains(i.running, gvk) {
		i.running = append(i.running, gvk)
	}

	listed := i.listed[gvk]
	i.mu.Unlock()

	select {
	case <-listed:
		return nil, nil //nolint:nilnil // the caller ignores it
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (i *informers) RemoveInformer(_ context.Context, object client.Object) error {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.running = slices.DeleteFunc(i.running, func(gvk schema.GroupVersionKind) bool { return gvk == object.GetObjectKind().GroupVersionKind() })

	return nil
}

func (i *informers) runs() []schema.GroupVersionKind {
	i.mu.Lock()
	defer i.mu.Unlock()

	return slices.Clone(i.running)
}

// sources takes the place of a controller.
type sources struct{ controller.Controller }

func (sources) Watch(source.TypedSource[reconcile.Request]) error { return nil }

func soon(t *testing.T, what string, check func() bool) {
	t.Helper()

	for deadline := time.Now().Add(5 * time.Second); !check(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never happens: " + what)
		}
	}
}

// A kind that cannot be listed blocks no worker, and is no longer listed when no
// ExternalSecret refers to it.
func TestKinds(t *testing.T) {
	t.Parallel()

	managed := &informers{listed: map[schema.GroupVersionKind]chan struct{}{configMaps: make(chan struct{}), things: make(chan struct{})}}

	var (
		mu    sync.Mutex
		known []string
	)

	k := kindsOf(managed, func(names ...types.NamespacedName) {
		mu.Lock()
		defer mu.Unlock()

		for _, name := range names {
			known = append(known, name.Name)
		}
	})
	k.begin(sources{}, nil)

	defer k.watches.Stop()

	clock := time.Now()
	k.now = func() time.Time { return clock }

	subscriptions := map[string]*kindSubscription{}
	for _, name := range []string{"a", "b", "c", "d"} {
		subscriptions[name] = k.watches.Subscribe(types.NamespacedName{Namespace: "ns", Name: name})
	}

	follow(subscriptions["a"], configMaps)
	follow(subscriptions["b"], configMaps)
	follow(subscriptions["c"], things)

	began := time.Now()

	for _, gvk := range []schema.GroupVersionKind{configMaps, configMaps, things} {
		if err := k.watch(t.Context(), gvk); !errors.Is(err, objectwatch.ErrPending) {
			t.Errorf("%s: at first it is not known yet: %v", gvk.Kind, err)
		}
	}

	clock = clock.Add(listTimeout)

	if err := k.watch(t.Context(), things); !errors.Is(err, errUnlisted) {
		t.Errorf("later that is an error: %v", err)
	}

	if took := time.Since(began); took > time.Second {
		t.Errorf("four looks took %s", took)
	}

	close(managed.listed[configMaps])
	soon(t, "subscribers of a kind are notified when it is synced", func() bool {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(known)

		return slices.Equal(known, []string{"a", "b"})
	})

	if err := k.watch(t.Context(), configMaps); err != nil {
		t.Error(err)
	}

	follow(subscriptions["a"], schema.GroupVersionKind{})

	if err := k.watch(t.Context(), configMaps); err != nil {
		t.Errorf("one of two goes, and the kind with it: %v", err)
	}

	// The last of each goes: one to another kind, one for good.
	follow(subscriptions["b"], things)
	follow(subscriptions["c"], schema.GroupVersionKind{})
	follow(subscriptions["b"], schema.GroupVersionKind{})
	soon(t, "their informers end", func() bool { return len(managed.runs()) == 0 })

	// A later subscription starts a new informer.
	follow(subscriptions["d"], things)

	if err := k.watch(t.Context(), things); !errors.Is(err, objectwatch.ErrPending) {
		t.Error(err)
	}

	close(managed.listed[things])
	soon(t, "a kind that comes back is known", func() bool { return k.watch(t.Context(), things) == nil })
}
