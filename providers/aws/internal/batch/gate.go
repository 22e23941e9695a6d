package batch

import (
	"sync"
	"time"
)

// shut is how long a gate stays shut after a refusal.
const shut = 10 * time.Minute

// Gate is open at first. Safe for concurrent use.
type Gate struct {
	now func() time.Time

	mu    sync.Mutex
	until time.Time
}

// New returns an open gate with the given clock.
func New(now func() time.Time) *Gate { return &Gate{now: now} }

// Open reports whether the call may be tried.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return !g.now().Before(g.until)
}

// Shut closes the gate for ten minutes, because AWS does not allow the call.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.until = g.now().Add(shut)
}
