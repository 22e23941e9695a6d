// Package backoff counts failures per object and says when to try again.
package backoff

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Backoff gives pauses that double from the shortest to the longest, with up
// to a tenth taken off at random so that objects that failed together do not
// come back together.
type Backoff struct {
	shortest, longest time.Duration

	mu       sync.Mutex
	failures map[string]int
}

// New makes a backoff.
func New(shortest, longest time.Duration) *Backoff {
	return &Backoff{shortest: shortest, longest: longest, failures: map[string]int{}}
}

// Next counts a failure of an object and gives the pause before its next try,
// which is never shorter than atLeast.
func (b *Backoff) Next(object string, atLeast time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()

	pause := b.longest
	if n := b.failures[object]; n < 30 && b.shortest<<n < b.longest {
		pause = b.shortest << n
	}

	b.failures[object]++
	pause -= time.Duration(rand.Float64() * float64(pause) / 10) //nolint:gosec // no secret depends on it

	return max(pause, atLeast)
}

// Forget starts an object's count anew.
func (b *Backoff) Forget(object string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	delete(b.failures, object)
}

// Longest pause there is.
func (b *Backoff) Longest() time.Duration { return b.longest }
