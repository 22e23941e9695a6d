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
	// first: a Secret that somebody waits for does not exist yet.
	first = 100
	// changed: somebody has just changed something.
	changed = 50
	// periodic: nobody waits for it.
	periodic = 0
)

// urgency of an ExternalSecret that is seen for the first time by this
// process, or that has changed.
func urgency(object client.Object, otherwise int) int {
	if es, ok := object.(*esv1.ExternalSecret); ok && es.Status.RefreshTime.IsZero() && es.Status.Conditions == nil {
		return first
	}

	return otherwise
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// byUrgency puts ExternalSecrets into the queue.
type byUrgency struct{}

var _ handler.EventHandler = byUrgency{}

// Create is an ExternalSecret that was made, or stands in the initial list.
func (byUrgency) Create(_ context.Context, e event.CreateEvent, q requests) {
	add(q, urgency(e.Object, periodic), client.ObjectKeyFromObject(e.Object))
}

// Update is an ExternalSecret that was changed.
func (byUrgency) Update(_ context.Context, e event.UpdateEvent, q requests) {
	add(q, urgency(e.ObjectNew, changed), client.ObjectKeyFromObject(e.ObjectNew))
}

// Delete is an ExternalSecret that is gone.
func (byUrgency) Delete(_ context.Context, e event.DeleteEvent, q requests) {
	add(q, periodic, client.ObjectKeyFromObject(e.Object))
}

// Generic events are not used.
func (byUrgency) Generic(context.Context, event.GenericEvent, requests) {}

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

// urgentQueue is the controller's queue, for those who find out about a change
// by other ways than a watch of the cache.
type urgentQueue struct {
	mu    sync.Mutex
	queue requests
}

// start is a source of events: it gets hold of the queue.
func (u *urgentQueue) start(_ context.Context, q requests) error {
	u.mu.Lock()
	defer u.mu.Unlock()

	u.queue = q

	return nil
}

// add puts objects into the queue, once there is one.
func (u *urgentQueue) add(priority int, names ...types.NamespacedName) {
	u.mu.Lock()
	q := u.queue
	u.mu.Unlock()

	if q != nil {
		add(q, priority, names...)
	}
}
