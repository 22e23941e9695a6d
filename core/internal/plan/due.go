package plan

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/marker"
)

// DefaultRefreshInterval of an ExternalSecret that names none.
const DefaultRefreshInterval = time.Hour

// jitterShare is the largest part of an interval that jitter takes off.
const jitterShare = 0.1

// Due says whether a sync is due and when the next one is.
type Due struct {
	// Now says that the store has to be read.
	Now bool
	// Why, in a few words; for logs.
	Why string
	// Next is the time until the next sync is due if nothing changes; 0 means
	// never, or that it is due now.
	Next time.Duration
}

// atOnce is the shortest wait that a work queue does not take for none.
const atOnce = time.Millisecond

// Again is the wait until the object has to be looked at again: what has become
// due while it was being synced, because the store was slow or the interval is
// short, must not be forgotten. 0 means that only a change brings it back.
func (d Due) Again() time.Duration {
	if d.Now {
		return atOnce
	}

	return d.Next
}

// Decide says whether an ExternalSecret is due. dependencies is the digest of
// the stores as they are now; intact says whether the target is as the last
// sync left it.
func Decide(es *esv1.ExternalSecret, dependencies string, intact bool, now time.Time) Due {
	status := &es.Status

	if status.RefreshTime.IsZero() {
		return Due{Now: true, Why: "never synced"}
	}

	if !intact {
		return Due{Now: true, Why: "the target is missing or was changed"}
	}

	changed := status.SyncedResourceVersion != marker.SyncedVersion(&es.ObjectMeta)

	switch es.Spec.RefreshPolicy {
	case esv1.RefreshCreatedOnce:
		return Due{}
	case esv1.RefreshOnChange:
		if changed {
			return Due{Now: true, Why: "the ExternalSecret changed"}
		}

		return Due{}
	case esv1.RefreshPeriodic:
	}

	interval := Interval(es)
	if interval <= 0 {
		return Due{}
	}

	since := now.Sub(status.RefreshTime.Time)
	// The API keeps whole seconds. Counting the lost part as elapsed would
	// read a store twice in a row where the interval is short.
	if status.RefreshTime.Nanosecond() == 0 {
		since -= time.Second
	}

	switch {
	case changed:
		return Due{Now: true, Why: "the ExternalSecret changed"}
	case status.SyncedDependencies != dependencies:
		return Due{Now: true, Why: "a store, its config or its registration changed"}
	case since < 0:
		// A real jump of the clock is larger than what the seconds hide.
		if since < -time.Minute {
			return Due{Now: true, Why: "the last sync lies in the future"}
		}
	case since >= jittered(es.UID, interval):
		return Due{Now: true, Why: "the refresh interval is over"}
	}

	return Due{Next: jittered(es.UID, interval) - max(since, 0)}
}

// Interval between two reads of the store.
func Interval(es *esv1.ExternalSecret) time.Duration {
	if es.Spec.RefreshInterval == nil {
		return DefaultRefreshInterval
	}

	return es.Spec.RefreshInterval.Duration
}

// jittered shortens an interval by up to a tenth, by the same part for the
// same object each time, so that objects made together drift apart.
func jittered(uid types.UID, interval time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))

	return interval - time.Duration(float64(interval)*jitterShare*float64(h.Sum32())/float64(1<<32))
}
