// Package bulkhead bounds the syncs that may be under way through one store
// and one provider, so that those of a slow one do not take up all workers.
// Nobody waits: who finds no room is called when there is some.
package bulkhead

import (
	"slices"
	"sync"
)

// Bulkhead counts what is under way by lane.
type Bulkhead[W comparable] struct {
	wake func(W)

	mu      sync.Mutex
	inUse   map[string]int
	waiting map[string][]W
	parked  map[W]bool
}

// Lane is a name and how many may use it at the same time.
type Lane struct {
	Name  string
	Limit int
}

// New makes a bulkhead. wake is called with each of those that were turned
// away, when it may try again; it must not block.
func New[W comparable](wake func(W)) *Bulkhead[W] {
	return &Bulkhead[W]{wake: wake, inUse: map[string]int{}, waiting: map[string][]W{}, parked: map[W]bool{}}
}

// Enter takes a place in every lane, or in none. Where ok is false, who is
// woken as soon as the lane that was full has room.
func (b *Bulkhead[W]) Enter(who W, lanes []Lane) (leave func(), ok bool) {
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
		if b.inUse[lane.Name] < lane.Limit {
			continue
		}

		if !b.parked[who] {
			b.parked[who] = true
			b.waiting[lane.Name] = append(b.waiting[lane.Name], who)
		}

		return nil, false
	}

	for _, lane := range lanes {
		b.inUse[lane.Name]++
	}

	return func() { b.leave(lanes) }, true
}

func (b *Bulkhead[W]) leave(lanes []Lane) {
	var woken []W

	b.mu.Lock()

	for _, lane := range lanes {
		b.inUse[lane.Name]--
		if b.inUse[lane.Name] == 0 {
			delete(b.inUse, lane.Name)
		}

		queue := b.waiting[lane.Name]
		if len(queue) == 0 {
			continue
		}

		woken = append(woken, queue[0])
		delete(b.parked, queue[0])

		if len(queue) == 1 {
			delete(b.waiting, lane.Name)
		} else {
			b.waiting[lane.Name] = queue[1:]
		}
	}

	b.mu.Unlock()

	for _, who := range woken {
		b.wake(who)
	}
}
