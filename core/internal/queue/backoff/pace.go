package backoff

import (
	"sync"
	"time"
)

// Pace lets something happen to an object at once, and more slowly the more
// often it happens: two who undo each other's work must not do so for ever at
// full speed.
type Pace struct {
	shortest, longest time.Duration
	now               func() time.Time

	mu      sync.Mutex
	objects map[string]step
}

type step struct {
	last  time.Time
	pause time.Duration
}

// NewPace makes a pace whose pauses double from the shortest to the longest,
// and start anew after ten times the longest without an event.
func NewPace(shortest, longest time.Duration) *Pace {
	return &Pace{shortest: shortest, longest: longest, now: time.Now, objects: map[string]step{}}
}

// Wait tells how long the object has to wait; 0 means that it may go on, which
// is counted.
func (p *Pace) Wait(object string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()

	now := p.now()
	former, ok := p.objects[object]

	if !ok || now.Sub(former.last) > 10*p.longest {
		p.objects[object] = step{last: now, pause: p.shortest}

		return 0
	}

	if left := former.last.Add(former.pause).Sub(now); left > 0 {
		return left
	}

	p.objects[object] = step{last: now, pause: min(2*former.pause, p.longest)}

	return 0
}

// Forget drops what is known of an object.
func (p *Pace) Forget(object string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.objects, object)
}
