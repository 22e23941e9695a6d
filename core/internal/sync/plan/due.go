package plan

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/compat"
)

// DefaultRefreshInterval of an ExternalSecret that names none.
const DefaultRefreshInterval = time.Hour

// shortestInterval keeps one ExternalSecret from taking up a worker.
const shortestInterval = time.Second

// jitterShare is the largest part of an interval that jitter takes off.
const jitterShare = 0.1

// Due reports whether a sync is due and when the next one is.
type Due struct {
	// Now says that the store has to be read.
	Now bool
	// Repair says that only the target is wrong: what was fetched last will
	// do.
	Repair bool
	// Periodic says that nothing changed but the time.
	Periodic bool
	// Asked means that the ExternalSecret was changed by a user who expects what the
	// stores hold from then on.
	Asked bool
	// Why, in a few words; for logs.
	Why string
	// Held says that the clock asks for a refresh, and that a sync window holds
	// it back.
	Held bool
	// Next is the time until the next read of the store is due if nothing
	// changes; 0 means never, or that it is due now.
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

// State is what a decision rests on besides the ExternalSecret.
type State struct {
	// Dependencies is the digest of the stores and templates as they are now.
	Dependencies string
	// Intact says that the target is as the last sync left it, or that this
	// does not matter.
	Intact bool
	// Frozen says that the target is there and immutable, as it should be.
	Frozen bool
	// Reported means that a backend reported a change since the stores were read
	// last.
	Reported bool
	// Now is the time.
	Now time.Time
}

// Decide reports whether an ExternalSecret is due.
func Decide(es *esv1.ExternalSecret, state State) Due {
	switch {
	case es.Status.RefreshTime.IsZero():
		return Due{Now: true, Why: "never synced"}
	case state.Frozen:
		return Due{}
	}

	// First whether the stores have to be read: a client that keeps
	// changing a target must not prevent its refresh.
	due := read(es, state)
	if due.Now || state.Intact {
		return due
	}

	return Due{Now: true, Repair: true, Why: "the target is missing or was changed", Next: due.Next}
}

// read decides whether the stores have to be read, whatever became of the
// target.
func read(es *esv1.ExternalSecret, state State) Due {
	changed := es.Status.SyncedResourceVersion != compat.SyncedVersion(&es.ObjectMeta)

	if changed && forced(es) {
		return Due{Now: true, Asked: true, Why: "the annotation asks for it"}
	}

	switch es.Spec.RefreshPolicy {
	case esv1.RefreshCreatedOnce:
		return Due{}
	case esv1.RefreshOnChange:
		if changed {
			return Due{Now: true, Asked: true, Why: "the ExternalSecret changed"}
		}

		return Due{}
	case esv1.RefreshPeriodic:
	}

	interval := Interval(es)
	if interval <= 0 {
		return Due{}
	}

	switch {
	case changed:
		return Due{Now: true, Asked: true, Why: "the ExternalSecret changed"}
	case es.Status.SyncedDependencies != state.Dependencies:
		return Due{Now: true, Why: "a store, its config, its registration or a template changed"}
	}

	if state.Reported {
		return reported(es, interval, state.Now)
	}

	return periodic(es, interval, state.Now)
}

// reported reads what has changed at the backend, where a sync window does not hold
// that back.
func reported(es *esv1.ExternalSecret, interval time.Duration, now time.Time) Due {
	ok, from := permitted(es.Spec.SyncWindows, now)

	switch {
	case ok:
		return Due{Now: true, Why: "the backend reported a change"}
	case from.IsZero():
		return Due{Held: true}
	default:
		return Due{Held: true, Next: from.Sub(now) + jitter(es.UID, min(interval, time.Minute))}
	}
}

// periodic decides by the clock.
func periodic(es *esv1.ExternalSecret, interval time.Duration, now time.Time) Due {
	since := now.Sub(es.Status.RefreshTime.Time)
	// The API keeps whole seconds. Counting the lost part as elapsed would
	// read a store twice in a row where the interval is short.
	if es.Status.RefreshTime.Nanosecond() == 0 {
		since -= time.Second
	}

	pause := interval - jitter(es.UID, interval)

	// A real jump of the clock is larger than what the seconds hide.
	jumped := since < -time.Minute
	if !jumped && since < pause {
		return Due{Next: pause - max(since, 0)}
	}

	ok, from := permitted(es.Spec.SyncWindows, now)

	switch {
	case !ok && from.IsZero():
		return Due{Held: true}
	case !ok:
		// Not all at the same moment, and not after a short window's end.
		return Due{Held: true, Next: from.Sub(now) + jitter(es.UID, min(interval, time.Minute))}
	case jumped:
		return Due{Now: true, Why: "the last sync lies in the future"}
	default:
		return Due{Now: true, Periodic: true, Why: "the refresh interval is over"}
	}
}

// Overdue returns how long ago a periodic refresh should have happened; 0 where
// none is due. One that a sync window holds back is not overdue.
func Overdue(es *esv1.ExternalSecret, now time.Time) time.Duration {
	interval := Interval(es)

	switch {
	case es.Status.RefreshTime.IsZero(), interval <= 0, es.DeletionTimestamp != nil:
		return 0
	case es.Spec.RefreshPolicy != "" && es.Spec.RefreshPolicy != esv1.RefreshPeriodic:
		return 0
	}

	if ok, _ := permitted(es.Spec.SyncWindows, now); !ok {
		return 0
	}

	return max(0, now.Sub(es.Status.RefreshTime.Time)-interval)
}

// ForceSync is the digest of the force-sync annotation; empty where there is
// none.
func ForceSync(es *esv1.ExternalSecret) string {
	value, ok := es.Annotations[esv1.AnnotationForceSync]
	if !ok {
		return ""
	}

	return compat.Digest(value)
}

// forced reports whether the annotation's value is another one than at the last
// sync.
func forced(es *esv1.ExternalSecret) bool {
	wanted := ForceSync(es)

	return wanted != "" && wanted != es.Status.SyncedForceSync
}

// Refreshes reports whether the store is read again when nothing but the backend
// changes.
func Refreshes(es *esv1.ExternalSecret) bool {
	return Interval(es) > 0 && es.Spec.RefreshPolicy != esv1.RefreshCreatedOnce && es.Spec.RefreshPolicy != esv1.RefreshOnChange
}

// Interval between two reads of the store; not positive where there is only
// one.
func Interval(es *esv1.ExternalSecret) time.Duration {
	if es.Spec.RefreshInterval == nil {
		return DefaultRefreshInterval
	}

	interval := es.Spec.RefreshInterval.Duration
	if interval <= 0 {
		return interval
	}

	return max(interval, shortestInterval)
}

// MaxJitter is the largest part of the interval that jitter takes off.
func MaxJitter(es *esv1.ExternalSecret) time.Duration {
	return time.Duration(float64(Interval(es)) * jitterShare)
}

// jitter is up to a tenth of an interval, the same part for the same object
// each time, so that objects made together drift apart.
func jitter(uid types.UID, interval time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))

	return time.Duration(float64(interval) * jitterShare * float64(h.Sum32()) / float64(1<<32))
}
