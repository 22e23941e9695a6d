package batch

import (
	"sync"
	"time"
)

// shut is how long a gate stays shut.
const shut = 10 * time.Minute

// Gate is open at first. Safe for concurrent use.
type Gate struct {
	now func() time.Time

	mu    sync.Mutex
	until time.Time
}

// New returns a gate that takes the time from now.
func New(now func() time.Time) *Gate { return &Gate{now: now} }

// Open reports whether the call may be tried.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return !g.now().Before(g.until)
}

// Shut says that AWS does not allow the call. The gate opens after ten minutes.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.until = g.now().Add(shut)
}
