// Package admission bounds the reads in flight per flow, which is a store or a
// provider, so that a slow one does not occupy all workers. No worker waits: an
// object that is not admitted is queued, and enqueued with the controller again
// when its flow has room, by priority, in turn with
// the objects of other stores, and then in the order of arrival.
package admission

import (
	"cmp"
	"container/heap"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Flow is what a read occupies.
type Flow struct {
	Name string
	// Share is how many reads may be in flight, whatever the other flows do.
	Share int
	// Elastic flows exceed their share while less than half of all workers read.
	Elastic bool
}

// Limiter admits reads of objects of type W.
type Limiter[W comparable] struct {
	wake func(who W, priority int)
	half int

	mu sync.Mutex
	// reading and woken are the reads in flight, and the objects that were woken
	// and have not returned yet, over all flows.
	reading, woken int
	flows          map[string]*flow[W]
	waiting        map[W]*waiter[W]
	arrivals       uint64
	// round is that of the object that was woken last, and lines are those that
	// have objects waiting.
	round uint64
	lines map[string]*line
}

// line is the objects that wait for the same flows with the same priority. Each
// object of a line is in a round of its own, and rounds are served in order: so
// lines take turns, and one with thousands of objects delays an object of another
// by one turn (start-time fair queueing).
type line struct {
	waiting int
	last    uint64
}

type flow[W comparable] struct {
	reading, woken int
	queue          queue[W]
}

// waiter is an object that was not admitted. It is in the queue of the first
// flow that had no room, or woken.
type waiter[W comparable] struct {
	who      W
	priority int
	arrival  uint64
	round    uint64
	line     string
	flows    []Flow
	blocked  Flow
	woken    bool
	index    int // in the queue
}

// New returns a Limiter for so many workers. wake is called with each object
// that may be admitted now; it must not block.
func New[W comparable](workers int, wake func(who W, priority int)) *Limiter[W] {
	return &Limiter[W]{wake: wake, half: workers / 2, flows: map[string]*flow[W]{}, waiting: map[W]*waiter[W]{}, lines: map[string]*line{}}
}

// TryAcquire admits an object to all of its flows, or to none. A quarter of each
// flow is reserved for positive priorities. Where ok is false the object is
// woken later, and must then call TryAcquire or Cancel; where it is true,
// release must be called once.
func (l *Limiter[W]) TryAcquire(who W, priority int, flows []Flow) (release func(), ok bool) {
	flows = slices.Clone(flows)
	slices.SortFunc(flows, func(a, b Flow) int { return cmp.Compare(a.Name, b.Name) })
	flows = slices.CompactFunc(flows, func(a, b Flow) bool { return a.Name == b.Name })

	l.mu.Lock()

	former := l.take(who)
	full := slices.IndexFunc(flows, func(f Flow) bool { return !l.room(f, priority, false) })

	if full < 0 {
		l.reading++
		for _, f := range flows {
			l.flow(f.Name).reading++
		}
	} else {
		l.wait(&waiter[W]{who: who, priority: priority, flows: flows, blocked: flows[full]}, former)
	}

	var woken []*waiter[W]
	if former != nil && former.woken {
		woken = l.next(former.flows)
	}

	l.mu.Unlock()
	l.wakeAll(woken)

	if full >= 0 {
		return nil, false
	}

	return func() { l.release(flows) }, true
}

// Cancel removes an object that has nothing to read now.
func (l *Limiter[W]) Cancel(who W) {
	l.mu.Lock()

	var woken []*waiter[W]
	if former := l.take(who); former != nil {
		woken = l.next(former.flows)
	}

	l.mu.Unlock()
	l.wakeAll(woken)
}

func (l *Limiter[W]) release(flows []Flow) {
	l.mu.Lock()

	l.reading--
	for _, f := range flows {
		l.flow(f.Name).reading--
	}

	woken := l.next(flows)

	l.mu.Unlock()
	l.wakeAll(woken)
}

// room reports whether a flow admits one more read. Objects that were woken
// count for those that are about to be: not for one that is here already, as
// they may not return.
func (l *Limiter[W]) room(f Flow, priority int, countWoken bool) bool {
	share, half := f.Share, l.half
	if priority <= 0 {
		share, half = max(1, share-share/4), half-half/4
	}

	reading, all := 0, l.reading
	if known, ok := l.flows[f.Name]; ok {
		reading = known.reading

		if countWoken {
			reading += known.woken
		}
	}

	if countWoken {
		all += l.woken
	}

	return reading < share || (f.Elastic && all < half)
}

// wait queues an object. One that waited in the same line before keeps its place.
func (l *Limiter[W]) wait(w, former *waiter[W]) {
	w.line = lineOf(w.flows, w.priority)

	known, ok := l.lines[w.line]
	if !ok {
		known = &line{}
		l.lines[w.line] = known
	}

	known.waiting++

	if former != nil && former.line == w.line {
		w.arrival, w.round = former.arrival, former.round
	} else {
		l.arrivals++
		w.arrival = l.arrivals
		w.round = max(l.round, known.last) + 1
	}

	known.last = max(known.last, w.round)
	l.waiting[w.who] = w
	heap.Push(&l.flow(w.blocked.Name).queue, w)
}

// take removes an object from those that wait, and returns it; nil where it did
// not wait.
func (l *Limiter[W]) take(who W) *waiter[W] {
	w, ok := l.waiting[who]
	if !ok {
		return nil
	}

	delete(l.waiting, who)

	if known := l.lines[w.line]; known.waiting > 1 {
		known.waiting--
	} else {
		delete(l.lines, w.line)
	}

	if w.woken {
		l.count(w, -1)
	} else {
		heap.Remove(&l.flow(w.blocked.Name).queue, w.index)
	}

	return w
}

// count counts a waiter that is woken, or has returned.
func (l *Limiter[W]) count(w *waiter[W], by int) {
	l.woken += by
	for _, f := range w.flows {
		l.flow(f.Name).woken += by
	}
}

// next takes the objects that are to be woken after flows may have got room.
func (l *Limiter[W]) next(freed []Flow) (woken []*waiter[W]) {
	for w := l.best(freed); w != nil; w = l.best(freed) {
		heap.Pop(&l.flow(w.blocked.Name).queue)

		// It may have to wait for another flow next.
		if full := slices.IndexFunc(w.flows, func(f Flow) bool { return !l.room(f, w.priority, true) }); full >= 0 {
			w.blocked = w.flows[full]
			heap.Push(&l.flow(w.blocked.Name).queue, w)

			continue
		}

		w.woken = true
		l.round = max(l.round, w.round)
		l.count(w, 1)

		woken = append(woken, w)
	}

	for _, f := range freed {
		if known, ok := l.flows[f.Name]; ok && known.reading == 0 && known.woken == 0 && known.queue.Len() == 0 {
			delete(l.flows, f.Name)
		}
	}

	return woken
}

// best returns the first of those that wait for a flow that has room; nil where
// there is none.
func (l *Limiter[W]) best(freed []Flow) (best *waiter[W]) {
	consider := func(f *flow[W]) {
		if f.queue.Len() == 0 {
			return
		}

		if w := f.queue[0]; (best == nil || before(w, best)) && l.room(w.blocked, w.priority, true) {
			best = w
		}
	}

	// Elastic flows get room by the end of any read.
	if l.reading+l.woken < l.half {
		for _, f := range l.flows {
			consider(f)
		}

		return best
	}

	for _, f := range freed {
		consider(l.flow(f.Name))
	}

	return best
}

func (l *Limiter[W]) wakeAll(woken []*waiter[W]) {
	for _, w := range woken {
		l.wake(w.who, w.priority)
	}
}

func (l *Limiter[W]) flow(name string) *flow[W] {
	known, ok := l.flows[name]
	if !ok {
		known = &flow[W]{}
		l.flows[name] = known
	}

	return known
}

// queue is a heap of waiters.
type queue[W comparable] []*waiter[W]

var _ heap.Interface = (*queue[int])(nil)

func (q queue[W]) Len() int { return len(q) }

func (q queue[W]) Less(i, j int) bool {
	return before(q[i], q[j])
}

// lineOf names the line of an object.
func lineOf(flows []Flow, priority int) string {
	names := make([]string, 0, len(flows)+1)
	for _, f := range flows {
		names = append(names, f.Name)
	}

	return strings.Join(append(names, strconv.Itoa(priority)), "\x00")
}

// before orders waiters: higher priorities first, then by round, then by arrival.
func before[W comparable](a, b *waiter[W]) bool {
	if a.priority != b.priority {
		return a.priority > b.priority
	}

	if a.round != b.round {
		return a.round < b.round
	}

	return a.arrival < b.arrival
}

func (q queue[W]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue[W]) Push(x any) {
	w, _ := x.(*waiter[W])
	w.index = len(*q)
	*q = append(*q, w)
}

func (q *queue[W]) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]

	return w
}
