package externalsecret

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/expectation"
	"github.com/external-secrets/eso/core/internal/queue/backoff"
	"github.com/external-secrets/eso/core/internal/store/watch"
	"github.com/external-secrets/eso/core/internal/sync/objectwatch"
)

const (
	// shortestRetry and longestRetry bound the pauses after failures.
	shortestRetry = time.Second
	longestRetry  = 7 * time.Minute
)

// record is what this process remembers of one ExternalSecret besides the
// cache. It is created by the first sync and dropped by forget; one worker at a
// time uses it.
type record struct {
	// failures are the pauses after failures since the last success.
	failures wait.Backoff
	// repairs slows down repairs of a target that another client keeps changing.
	repairs backoff.Pace
	// object and target are the versions that this process wrote last.
	object, target expectation.Expectation
	// objects, kind and stores are what it has subscribed to.
	objects *objectwatch.Subscription
	kind    *kindSubscription
	stores  *watch.Subscriber
}

func newFailures() wait.Backoff { return backoff.New(shortestRetry, longestRetry) }

// newRecord returns the record of an ExternalSecret of which nothing is known.
func (r *Reconciler) newRecord(name types.NamespacedName) *record {
	return &record{
		failures: newFailures(), repairs: backoff.NewPace(shortestRepair, longestRepair),
		objects: r.objects.Subscribe(name), kind: r.kinds.watches.Subscribe(name), stores: r.stores.Subscribe(name),
	}
}

// forget drops everything that is kept of an ExternalSecret that is gone. Three
// things are not part of its record: fetched values, whose memory is bounded
// over all ExternalSecrets; its place among those that wait for a busy store,
// which is an order of all of them and ends with each sync; its metrics, which
// are kept where they are collected.
func (r *Reconciler) forget(name types.NamespacedName) {
	if dropped := r.records.Drop(name); dropped != nil {
		dropped.objects.Close()
		dropped.kind.Close()
		dropped.stores.Close()
	}

	r.memory.Forget(name)
	r.Metrics.Forget(name)
}

// wrote remembers the versions of the object and, unless empty, of its target
// after a write.
func (m *record) wrote(es *esv1.ExternalSecret, target string, now time.Time) {
	m.object.Expect(es.ResourceVersion, now)
	m.target.Expect(target, now)
}

// pending reports whether the caches are older than what was written: what
// differs is not another client's change, and acting on it would read the store
// twice.
func (m *record) pending(es *esv1.ExternalSecret, target client.Object, now time.Time) bool {
	version := ""
	if target != nil {
		version = target.GetResourceVersion()
	}

	object := m.object.Pending(es.ResourceVersion, now)

	return m.target.Pending(version, now) || object
}
