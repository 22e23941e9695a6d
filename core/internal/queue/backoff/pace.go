package backoff

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Pace lets an event happen at once, and more slowly the more often it happens:
// two controllers that undo each other's writes must not do so at full speed.
//
// wait.Backoff alone does not do that: it neither reports how much of a pause is
// left nor starts again after a quiet time. flowcontrol.Backoff does, but keeps
// a map of its own that has to be collected, and pauses before the first event
// rather than after it.
type Pace struct {
	shortest, longest time.Duration

	last  time.Time
	pause time.Duration
	next  wait.Backoff
}

// NewPace returns a pace whose pauses double from the shortest to the longest,
// and that starts again after ten times the longest without an event.
func NewPace(shortest, longest time.Duration) Pace {
	return Pace{shortest: shortest, longest: longest}
}

// Wait returns how long the event has to wait; 0 means that it may happen, which
// is counted.
func (p *Pace) Wait(now time.Time) time.Duration {
	if left := p.last.Add(p.pause).Sub(now); !p.last.IsZero() && left > 0 {
		return left
	}

	if p.last.IsZero() || now.Sub(p.last) > 10*p.longest {
		p.next = New(p.shortest, p.longest)
		p.next.Jitter = 0
	}

	p.last, p.pause = now, p.next.Step()

	return 0
}
