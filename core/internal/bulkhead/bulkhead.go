// Package bulkhead bounds the syncs that may be under way through one store
// and one provider, so that those of a slow one do not take up all workers.
// Nobody waits: who finds no room is called when there is some, the urgent
// first, for whom a quarter of each lane is kept free.
package bulkhead

import (
	"slices"
	"sync"
)

// Bulkhead counts what is under way by lane.
type Bulkhead[W comparable] struct {
	wake func(who W, urgent bool)

	mu      sync.Mutex
	inUse   map[string]int
	waiting map[string]*line[W]
	// parked are those who wait, and whether it is urgent.
	parked map[W]bool
}

// line of those who wait for a lane.
type line[W comparable] struct{ urgent, patient []W }

func (l *line[W]) add(who W, urgent bool) {
	if urgent {
		l.urgent = append(l.urgent, who)
	} else {
		l.patient = append(l.patient, who)
	}
}

// next takes the first in line.
func (l *line[W]) next() (who W, urgent bool) {
	if len(l.urgent) > 0 {
		who, l.urgent = l.urgent[0], l.urgent[1:]

		return who, true
	}

	who, l.patient = l.patient[0], l.patient[1:]

	return who, false
}

func (l *line[W]) empty() bool { return len(l.urgent)+len(l.patient) == 0 }

// Lane is a name and how many may use it at the same time.
type Lane struct {
	Name  string
	Limit int
}

// New makes a bulkhead. wake is called with each of those that were turned
// away, when it may try again; it must not block.
func New[W comparable](wake func(who W, urgent bool)) *Bulkhead[W] {
	return &Bulkhead[W]{wake: wake, inUse: map[string]int{}, waiting: map[string]*line[W]{}, parked: map[W]bool{}}
}

// Enter takes a place in every lane, or in none. Where ok is false, who is
// woken as soon as the lane that was full has room.
func (b *Bulkhead[W]) Enter(who W, urgent bool, lanes []Lane) (leave func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	lanes = slices.Clone(lanes)
	slices.SortFunc(lanes, func(a, c Lane) int {
		if a.Name < c.Name {
			return -1
		}

		return 1
	})

	lanes = slices.CompactFunc(lanes, func(a, c Lane) bool { return a.Name == c.Name })

	for _, lane := range lanes {
		limit := lane.Limit
		if !urgent {
			limit = max(1, limit-limit/4)
		}

		if b.inUse[lane.Name] < limit {
			continue
		}

		b.park(who, urgent, lane.Name)

		return nil, false
	}

	for _, lane := range lanes {
		b.inUse[lane.Name]++
	}

	return func() { b.leave(lanes) }, true
}

// park puts who into a lane's line, once; what has become urgent comes before
// what was not.
func (b *Bulkhead[W]) park(who W, urgent bool, lane string) {
	if was, waits := b.parked[who]; waits && (was || !urgent) {
		return
	}

	b.parked[who] = urgent

	if b.waiting[lane] == nil {
		b.waiting[lane] = &line[W]{}
	}

	b.waiting[lane].add(who, urgent)
}

func (b *Bulkhead[W]) leave(lanes []Lane) {
	type waiter struct {
		who    W
		urgent bool
	}

	var woken []waiter

	b.mu.Lock()

	for _, lane := range lanes {
		b.inUse[lane.Name]--
		if b.inUse[lane.Name] == 0 {
			delete(b.inUse, lane.Name)
		}

		queue := b.waiting[lane.Name]
		if queue == nil {
			continue
		}

		who, urgent := queue.next()
		woken = append(woken, waiter{who, urgent})

		delete(b.parked, who)

		if queue.empty() {
			delete(b.waiting, lane.Name)
		}
	}

	b.mu.Unlock()

	for _, w := range woken {
		b.wake(w.who, w.urgent)
	}
}
