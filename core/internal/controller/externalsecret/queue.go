package externalsecret

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// Order of the queue, the first first. Inside each it is first come, first
// served, so that nothing of the initial list starves.
const (
	// first: the Secret does not exist yet, and workloads wait for it.
	first = 100
	// changed: an object that it depends on was changed.
	changed = 50
	// periodic: only the refresh interval is over.
	periodic = 0
)

// priorityOf an ExternalSecret: that of a first sync where it was never synced,
// otherwise the given one.
func priorityOf(es *esv1.ExternalSecret, otherwise int) int {
	if es.Status.RefreshTime.IsZero() {
		return first
	}

	return otherwise
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// byPriority puts ExternalSecrets into the queue.
type byPriority struct{}

var _ handler.EventHandler = byPriority{}

// Create enqueues an ExternalSecret that was created, or is in the initial list.
func (byPriority) Create(_ context.Context, e event.CreateEvent, q requests) {
	if es, ok := e.Object.(*esv1.ExternalSecret); ok {
		add(q, priorityOf(es, periodic), client.ObjectKeyFromObject(es))
	}
}

// Update enqueues an ExternalSecret that was changed.
func (byPriority) Update(_ context.Context, e event.UpdateEvent, q requests) {
	if es, ok := e.ObjectNew.(*esv1.ExternalSecret); ok {
		add(q, priorityOf(es, changed), client.ObjectKeyFromObject(es))
	}
}

// Delete enqueues an ExternalSecret that was deleted.
func (byPriority) Delete(_ context.Context, e event.DeleteEvent, q requests) {
	add(q, periodic, client.ObjectKeyFromObject(e.Object))
}

// Generic events are not used.
func (byPriority) Generic(context.Context, event.GenericEvent, requests) {}

// dependents puts the ExternalSecrets that a change of another object concerns
// into the queue.
type dependents[O client.Object] struct {
	// of an object; they are the cache's own and must not be changed.
	of func(ctx context.Context, object O) []*esv1.ExternalSecret
	// settled, which may be nil, reports that an object is as an ExternalSecret has
	// left it: the event is an echo of the operator's own write, and not urgent.
	settled func(es *esv1.ExternalSecret, object O) bool
}

var _ handler.EventHandler = dependents[client.Object]{}

// Create enqueues for an object that was created, or is in the initial list: then the
// ExternalSecrets have their own place in the queue.
func (d dependents[O]) Create(ctx context.Context, e event.TypedCreateEvent[O], q requests) {
	d.enqueue(ctx, e.Object, func(es *esv1.ExternalSecret) bool { return e.IsInInitialList || d.echo(es, e.Object) }, q)
}

// Update enqueues for an object that was changed.
func (d dependents[O]) Update(ctx context.Context, e event.TypedUpdateEvent[O], q requests) {
	d.enqueue(ctx, e.ObjectNew, func(es *esv1.ExternalSecret) bool { return d.echo(es, e.ObjectNew) }, q)
}

// Delete enqueues for an object that was deleted.
func (d dependents[O]) Delete(ctx context.Context, e event.TypedDeleteEvent[O], q requests) {
	d.enqueue(ctx, e.Object, func(*esv1.ExternalSecret) bool { return false }, q)
}

// Generic events are not used.
func (dependents[O]) Generic(context.Context, event.TypedGenericEvent[O], requests) {}

func (d dependents[O]) echo(es *esv1.ExternalSecret, object O) bool {
	return d.settled != nil && d.settled(es, object)
}

func (d dependents[O]) enqueue(ctx context.Context, object O, routine func(*esv1.ExternalSecret) bool, q requests) {
	for _, es := range d.of(ctx, object) {
		priority := periodic
		if !routine(es) {
			priority = priorityOf(es, changed)
		}

		add(q, priority, client.ObjectKeyFromObject(es))
	}
}

func add(q requests, priority int, names ...types.NamespacedName) {
	for _, name := range names {
		request := reconcile.Request{NamespacedName: name}

		if urgent, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			urgent.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		} else {
			q.Add(request)
		}
	}
}

// controllerQueue is the controller's queue, for changes that are not reported by
// a watch of the cache.
type controllerQueue struct {
	mu    sync.Mutex
	queue requests
}

// start is a source of events that keeps the queue.
func (u *controllerQueue) start(_ context.Context, q requests) error {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.queue = q

	return nil
}

// add puts objects into the queue, once there is one.
func (u *controllerQueue) add(priority int, names ...types.NamespacedName) {
	u.mu.Lock()
	q := u.queue
	u.mu.Unlock()

	if q != nil {
		add(q, priority, names...)
	}
}
