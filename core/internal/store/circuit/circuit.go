// Package circuit implements circuit breakers: after failures, one call at a time
// probes whether the callee has recovered, at growing intervals, and all others
// fail with the last error at once.
package circuit

import (
	"sync"
	"time"
)

// Verdict on a call.
type Verdict int

const (
	// Success closes the circuit.
	Success Verdict = iota
	// Neutral failures say nothing about other calls, such as one that may lie in
	// what was asked for.
	Neutral
	// Suspect failures open the circuit when there are several in a row, such
	// as a call that was lost.
	Suspect
	// Certain failures open it at once: every call would fail in the same way.
	Certain
)

// tolerated is how many suspect failures in a row leave a circuit closed.
const tolerated = 2

// forgotten is how long after its last use a closed circuit is kept.
const forgotten = 10 * time.Minute

// Breakers are circuits by name.
type Breakers[E error] struct {
	shortest, longest time.Duration
	now               func() time.Time
	closed            func(name string)

	mu     sync.Mutex
	byName map[string]*breaker[E]
	swept  time.Time
}

type breaker[E error] struct {
	failures int // in a row
	openings int // in a row
	until    time.Time
	probing  bool
	last     E
	used     time.Time
}

// New returns circuits that stay open for the shortest time at first, and twice
// as long each time until the longest. closed, which may be nil, is called
// with the name of a circuit that was open and has closed.
func New[E error](shortest, longest time.Duration, closed func(name string)) *Breakers[E] {
	if closed == nil {
		closed = func(string) {}
	}

	return &Breakers[E]{shortest: shortest, longest: longest, now: time.Now, closed: closed, byName: map[string]*breaker[E]{}}
}

// Allow reports whether a call may be made. Where it may, done must be called
// with what became of it. Where it may not, last is the error that opened the
// circuit, and after is when to ask again.
func (b *Breakers[E]) Allow(name string) (done func(Verdict, E), last E, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()

	now := b.now()
	b.sweep(now)

	c, ok := b.byName[name]
	if !ok {
		c = &breaker[E]{}
		b.byName[name] = c
	}

	c.used = now

	open := !c.until.IsZero()
	if open && (c.probing || now.Before(c.until)) {
		return nil, c.last, max(c.until.Sub(now), b.shortest)
	}

	c.probing = open

	return func(verdict Verdict, err E) { b.done(name, c, open, verdict, err) }, last, 0
}

func (b *Breakers[E]) done(name string, c *breaker[E], probe bool, verdict Verdict, err E) {
	b.mu.Lock()

	if probe {
		c.probing = false
	}

	if verdict == Success {
		reopened := !c.until.IsZero()
		*c = breaker[E]{used: c.used}
		b.mu.Unlock()

		if reopened {
			b.closed(name)
		}

		return
	}

	defer b.mu.Unlock()

	// The next call is the next probe.
	if verdict == Neutral {
		return
	}

	c.failures++

	if verdict == Suspect && c.failures <= tolerated && !probe {
		return
	}

	// Calls that were under way when the circuit opened say nothing new.
	now := b.now()
	if !probe && now.Before(c.until) {
		return
	}

	c.until = now.Add(min(b.shortest<<min(c.openings, 20), b.longest))
	c.openings++
	c.last = err
}

// sweep removes circuits that are not used.
func (b *Breakers[E]) sweep(now time.Time) {
	if now.Sub(b.swept) < forgotten {
		return
	}

	b.swept = now

	for name, c := range b.byName {
		if now.Sub(c.used) > forgotten && !c.probing {
			delete(b.byName, name)
		}
	}
}
