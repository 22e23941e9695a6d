package clusterexternalsecret

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/external-secrets/eso/core/internal/expectation"
	"github.com/external-secrets/eso/core/internal/queue/backoff"
)

// record is what this process remembers of a ClusterExternalSecret. Only its
// pace depends on it: after a restart everything is decided from the cache. One
// worker at a time uses it.
type record struct {
	// failures are the pauses after failures since the last success.
	failures wait.Backoff
	// until is when namespaces that failed are tried again, pause how long that
	// was when it was reported.
	until time.Time
	pause time.Duration
	// status is the version after the last write of the status.
	status expectation.Expectation
	// writes by namespace.
	writes map[string]*write
}

// write is the last write of an object, and whether it succeeded.
type write struct {
	// digest of what was written, or could not be.
	digest  string
	failure error
	// version of the object after the write.
	version expectation.Expectation
	// repairs slows down writes of what another client keeps changing.
	repairs backoff.Pace
}

func newRecord(string) *record {
	return &record{failures: newFailures(), writes: map[string]*write{}}
}

func newFailures() wait.Backoff { return backoff.New(shortestRetry, longestRetry) }

// wrote remembers a write in a namespace.
func (r *record) wrote(namespace, digest, version string, failure error, now time.Time) {
	w := r.writes[namespace]
	if w == nil {
		w = &write{repairs: backoff.NewPace(shortestRepair, longestRepair)}
		r.writes[namespace] = w
	}

	w.digest, w.failure = digest, failure

	if failure != nil {
		version = ""
	}

	w.version.Expect(version, now)
}

// pending reports whether the cache, which has this version, or "" for no
// object, is older than what was written.
func (w *write) pending(version string, now time.Time) bool {
	return w != nil && w.version.Pending(version, now)
}

// wrote reports whether this was written: a difference from it is another
// client's change.
func (w *write) wrote(digest string) bool {
	return w != nil && w.failure == nil && w.digest == digest
}

// held reports whether this could not be written, and is not to be tried again
// yet.
func (r *record) held(namespace, digest string, now time.Time) bool {
	w := r.writes[namespace]

	return w != nil && w.failure != nil && w.digest == digest && now.Before(r.until)
}
