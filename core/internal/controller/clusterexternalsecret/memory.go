package clusterexternalsecret

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// lag is the longest that the cache is waited for. What it shows after that is
// the truth: somebody else has written, or deleted, in between.
const lag = 2 * time.Second

// memory is what this process knows of its own writes. Nothing depends on it
// but the pace: after a restart all is decided from the cache.
type memory struct {
	mu      sync.Mutex
	objects map[string]*record
}

// record of a ClusterExternalSecret. Only one goroutine at a time looks at it.
type record struct {
	// until is when namespaces that failed are tried again, pause how long
	// that was when it was told.
	until time.Time
	pause time.Duration
	// status is the last write of the status.
	status *write
	// writes by namespace.
	writes map[string]*write
}

// write is what became of the last write of an object.
type write struct {
	// digest of what was written, or could not be.
	digest string
	// version of the object after it.
	version string
	at      time.Time
	// seen tells that the cache has shown it.
	seen    bool
	failure error
}

func newMemory() *memory { return &memory{objects: map[string]*record{}} }

func (m *memory) of(name string) *record {
	m.mu.Lock()
	defer m.mu.Unlock()

	r := m.objects[name]
	if r == nil {
		r = &record{writes: map[string]*write{}}
		m.objects[name] = r
	}

	return r
}

func (m *memory) forget(name string) *record {
	m.mu.Lock()
	defer m.mu.Unlock()

	r := m.objects[name]
	delete(m.objects, name)

	return r
}

// ahead tells whether the cache, which has this version, or "" for nothing,
// shows less than was written.
func (w *write) ahead(version string, now time.Time) bool {
	if w == nil || w.failure != nil || w.seen || now.Sub(w.at) > lag {
		return false
	}

	if version == "" {
		return true
	}

	compared, err := resourceversion.CompareResourceVersion(version, w.version)
	w.seen = err != nil || compared >= 0

	return !w.seen
}

// wrote tells whether this was written: what differs from it is somebody's
// doing.
func (w *write) wrote(digest string) bool {
	return w != nil && w.failure == nil && w.digest == digest
}

// held tells whether this could not be written, and is not to be tried again
// yet.
func (r *record) held(namespace, digest string, now time.Time) bool {
	w := r.writes[namespace]

	return w != nil && w.failure != nil && w.digest == digest && now.Before(r.until)
}
