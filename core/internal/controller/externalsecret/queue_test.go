package externalsecret

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// priorities is a queue that notes with which priority something was added.
type priorities struct {
	priorityqueue.PriorityQueue[reconcile.Request]

	added map[string]int
}

func (p *priorities) AddWithOpts(options priorityqueue.AddOpts, requests ...reconcile.Request) {
	for _, request := range requests {
		p.added[request.Name] = *options.Priority
	}
}

// First syncs have priority over changes, and changes over periodic refreshes,
// regardless of the event that triggers them.
func TestPriorityOfEvents(t *testing.T) {
	t.Parallel()

	once := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: "synced"}, Status: esv1.ExternalSecretStatus{RefreshTime: metav1.Now()}}
	failed := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: "never"}, Status: esv1.ExternalSecretStatus{Conditions: []esv1.Condition{{}}}}
	of := func(context.Context, client.Object) []*esv1.ExternalSecret {
		return []*esv1.ExternalSecret{once, failed}
	}

	stores := dependents[client.Object]{of: of}
	targets := dependents[client.Object]{of: of, settled: func(_ *esv1.ExternalSecret, object client.Object) bool { return object.GetName() == "as it was left" }}

	left, touched := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "as it was left"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "touched"}}

	for _, c := range []struct {
		why         string
		happens     func(requests)
		once, never int
	}{
		{"a store changed", func(q requests) { stores.Update(t.Context(), event.UpdateEvent{ObjectNew: left}, q) }, changed, first},
		{"a store came into being", func(q requests) { stores.Create(t.Context(), event.CreateEvent{Object: left}, q) }, changed, first},
		{"a store went", func(q requests) { stores.Delete(t.Context(), event.DeleteEvent{Object: left}, q) }, changed, first},
		{"the initial list, which also contains the ExternalSecrets", func(q requests) {
			stores.Create(t.Context(), event.CreateEvent{Object: left, IsInInitialList: true}, q)
		}, periodic, periodic},
		{"another client updated a target", func(q requests) { targets.Update(t.Context(), event.UpdateEvent{ObjectNew: touched}, q) }, changed, first},
		{"another client deleted a target", func(q requests) { targets.Delete(t.Context(), event.DeleteEvent{Object: left}, q) }, changed, first},
		{"the event of the operator's own write", func(q requests) { targets.Update(t.Context(), event.UpdateEvent{ObjectNew: left}, q) }, periodic, periodic},
		{"the event of a target that the operator created", func(q requests) { targets.Create(t.Context(), event.CreateEvent{Object: left}, q) }, periodic, periodic},
	} {
		q := &priorities{added: map[string]int{}}
		c.happens(q)

		if q.added["synced"] != c.once || q.added["never"] != c.never || len(q.added) != 2 {
			t.Errorf("%s: %v", c.why, q.added)
		}
	}

	if *again(failed, time.Second).Priority != first || *again(once, time.Second).Priority != periodic {
		t.Error("what comes back by itself has lost its place")
	}
}
