package externalsecret

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/metrics"
	"github.com/external-secrets/eso/core/internal/store/watch"
	"github.com/external-secrets/eso/core/internal/sync/apply"
	"github.com/external-secrets/eso/core/internal/sync/fetch"
	"github.com/external-secrets/eso/core/internal/sync/objectwatch"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
	"github.com/external-secrets/eso/core/internal/sync/report"
	"github.com/external-secrets/eso/core/store"
)

// Of an ExternalSecret that is gone nothing is kept, its values above all, and
// the place that it was woken for is another's.
func TestWhatIsGoneLeavesNothing(t *testing.T) {
	t.Parallel()

	scheme := runtime.NewScheme()
	if err := esv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	objects := fake.NewClientBuilder().WithScheme(scheme).Build()
	r := New(Dependencies{Client: objects, Metrics: metrics.New(objects, nil)}, Options{Concurrent: 1, MemoryBytes: 1 << 20})
	r.objects = objectwatch.New(nil, nil, func(objectwatch.Key) {})
	r.kinds = kindsOf(nil, nil)

	q := &priorities{added: map[string]int{}}
	r.queue.queue = q

	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	flows := r.flows([]store.Flow{{Provider: "p", Store: "s"}})

	leave, ok := r.busy.TryAcquire(named("busy"), changed, flows)
	if !ok {
		t.Fatal("an empty lane is full")
	}

	for name, priority := range map[string]int{"gone": first, "next": changed} {
		if _, ok := r.busy.TryAcquire(named(name), priority, flows); ok {
			t.Fatal("a full lane has room")
		}
	}

	r.memory.Remember(named("gone"), "1", fetch.Answers{{store.Result{Value: []byte("value")}}})
	leave()

	if len(q.added) != 1 || q.added["gone"] != first {
		t.Fatalf("woken: %v", q.added)
	}

	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: named("gone")}); err != nil {
		t.Fatal(err)
	}

	if q.added["next"] != changed {
		t.Errorf("the place is lost: %v", q.added)
	}

	if r.memory.Recall(named("gone"), "1") != nil {
		t.Error("its values are kept")
	}
}

// left is a target that is as it was left.
type left struct{ apply.Writer }

func (left) Intact(*esv1.ExternalSecret, client.Object) bool { return true }

func (left) Frozen(*esv1.ExternalSecret, client.Object) bool { return false }

// An operator that dies between a new target and the end of the former one
// leaves no other trace than the name in the status.
func TestAFormerTargetIsNotForgotten(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why      string
		creation esv1.CreationPolicy
		binding  *esv1.Binding
		want     bool
	}{
		{"the target that was reported", esv1.CreationOwner, &esv1.Binding{Name: "app"}, true},
		{"another than was reported", esv1.CreationOwner, &esv1.Binding{Name: "former"}, false},
		{"one that is left behind", esv1.CreationOrphan, &esv1.Binding{Name: "former"}, true},
		{"none was reported", esv1.CreationOwner, nil, true},
	} {
		es := &esv1.ExternalSecret{Status: esv1.ExternalSecretStatus{Binding: c.binding}}
		r := New(Dependencies{}, Options{})
		s := &syncContext{es: es, target: left{}, current: es, record: &record{stores: r.stores.Subscribe(types.NamespacedName{})}, plan: &plan.Plan{Target: plan.Target{Name: "app", Creation: c.creation}}}

		if got := r.state(s).Intact; got != c.want {
			t.Errorf("%s: intact = %t", c.why, got)
		}
	}
}

// A sync does not use a read that began before the sync was requested.
func TestSince(t *testing.T) {
	t.Parallel()

	at := func(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }
	synced := metav1.NewTime(at(-100))

	for _, c := range []struct {
		why             string
		reported        time.Time
		refreshed       metav1.Time
		asked           bool
		began, expected time.Time
	}{
		{why: "a refresh accepts any read", refreshed: synced, began: at(10)},
		{why: "a first sync accepts no read that began before the object was created", began: at(10), expected: at(0)},
		{why: "a reported change", reported: at(5), refreshed: synced, began: at(10), expected: at(5)},
		{why: "a change that was reported before the first sync", reported: at(5), began: at(10), expected: at(5)},
		{why: "a requested sync", refreshed: synced, asked: true, began: at(10), expected: at(10)},
		{why: "a change that was reported after a sync was requested", reported: at(12), refreshed: synced, asked: true, began: at(10), expected: at(12)},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			s := &syncContext{began: c.began, mark: watch.Mark{Reported: c.reported}, es: &esv1.ExternalSecret{
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(0))},
				Status:     esv1.ExternalSecretStatus{RefreshTime: c.refreshed},
			}}

			if got := s.since(plan.Due{Now: true, Asked: c.asked}); !got.Equal(c.expected) {
				t.Errorf("since %s, want %s", got, c.expected)
			}
		})
	}
}

// countedStore counts how often it is resolved, and read.
type countedStore struct{ resolved, read int }

func (c *countedStore) Resolve(context.Context, store.Reference, string) (store.Snapshot, error) {
	c.resolved++

	return store.Snapshot{Revision: "1", Healthy: true, Client: c}, nil
}

func (*countedStore) Dependencies() []store.Dependency { return nil }

func (c *countedStore) Read(_ context.Context, reads []store.Read, _ []string) ([]store.Result, error) {
	c.read++

	return make([]store.Result, len(reads)), nil
}

func (*countedStore) Find(context.Context, store.Find) (map[string][]byte, error) { return nil, nil }

// A sync resolves each store only once.
func TestASyncResolvesAStoreOnce(t *testing.T) {
	t.Parallel()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{esv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "uid"}}
	es.Spec.SecretStoreRef = &esv1.StoreRef{APIVersion: "test/v1", Name: "store"}
	es.Spec.Data = []esv1.Data{{SecretKey: "a", RemoteRef: esv1.RemoteRef{Key: "a"}}, {SecretKey: "b", RemoteRef: esv1.RemoteRef{Key: "b"}}}

	objects := fake.NewClientBuilder().WithScheme(scheme).WithObjects(es).WithStatusSubresource(es).
		WithIndex(&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}, apply.IndexOwner, apply.ByOwner).Build()
	counted := &countedStore{}

	r := New(Dependencies{
		Client: objects, Direct: objects, Stores: store.Resolvers{"test/v1": counted}, Metrics: metrics.New(objects, nil),
		Reporter: report.New(objects, events.NewFakeRecorder(10)), Renderer: render.New(nil, nil),
	}, Options{Concurrent: 1, MemoryBytes: 1 << 20})
	r.objects = objectwatch.New(nil, nil, func(objectwatch.Key) {})
	r.kinds = kindsOf(nil, nil)

	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(es)}); err != nil {
		t.Fatal(err)
	}

	if err := objects.Get(t.Context(), client.ObjectKeyFromObject(es), es); err != nil || es.Status.RefreshTime.IsZero() {
		t.Fatalf("not synced: %+v, %v", es.Status, err)
	}

	if counted.resolved != 1 || counted.read != 1 {
		t.Errorf("resolved %d times, read %d times", counted.resolved, counted.read)
	}
}
