// Package bulkhead bounds the syncs that may be under way through one store
// and one provider, so that those of a slow one do not take up all workers.
// Nobody waits: who finds no room is called when there is some, the urgent
// first, for whom a quarter of each lane is kept free.
//
// An elastic lane may take more than its share of what nobody else uses, up to
// half of all places: the only store there is need not leave workers idle, and
// one that is slow still leaves the other half to the rest.
package bulkhead

import (
	"slices"
	"sync"
)

// Bulkhead counts what is under way by lane.
type Bulkhead[W comparable] struct {
	wake func(who W, urgent bool)
	// spare is how many may be under way in all while elastic lanes still take
	// more than their share.
	spare int

	mu sync.Mutex
	// entered is how many are under way in all.
	entered int
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

// Lane is what a sync goes through.
type Lane struct {
	Name string
	// Share is how many may use it at the same time, whatever the others do.
	Share int
	// Elastic lanes take more while less than half of all places are in use.
	Elastic bool
}

// New makes a bulkhead of so many places in all. wake is called with each of
// those that were turned away, when it may try again; it must not block.
func New[W comparable](places int, wake func(who W, urgent bool)) *Bulkhead[W] {
	return &Bulkhead[W]{
		wake: wake, spare: places / 2, inUse: map[string]int{}, waiting: map[string]*line[W]{}, parked: map[W]bool{},
	}
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
		if b.room(lane, urgent) {
			continue
		}

		b.park(who, urgent, lane.Name)

		return nil, false
	}

	for _, lane := range lanes {
		b.inUse[lane.Name]++
	}

	b.entered++

	return func() { b.leave(lanes) }, true
}

// room tells whether another may use a lane.
func (b *Bulkhead[W]) room(lane Lane, urgent bool) bool {
	share, spare := lane.Share, b.spare
	if !urgent {
		share, spare = max(1, share-share/4), spare-spare/4
	}

	return b.inUse[lane.Name] < share || lane.Elastic && b.entered < spare
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

// leave gives the places back and wakes the first in the line of each lane,
// and, while there is spare room, the first of another one: the lane that it
// waits for may have shrunk to its share while others were busy.
func (b *Bulkhead[W]) leave(lanes []Lane) {
	var woken []waiter[W]

	b.mu.Lock()

	b.entered--

	for _, lane := range lanes {
		b.inUse[lane.Name]--
		if b.inUse[lane.Name] == 0 {
			delete(b.inUse, lane.Name)
		}

		woken = b.next(woken, lane.Name)
	}

	if b.entered+len(woken) < b.spare {
		for name := range b.waiting {
			woken = b.next(woken, name)

			break
		}
	}

	b.mu.Unlock()

	for _, w := range woken {
		b.wake(w.who, w.urgent)
	}
}

type waiter[W comparable] struct {
	who    W
	urgent bool
}

// next adds the first in a lane's line, if there is one, and takes it out.
func (b *Bulkhead[W]) next(woken []waiter[W], lane string) []waiter[W] {
	queue := b.waiting[lane]
	if queue == nil {
		return woken
	}

	who, urgent := queue.next()

	delete(b.parked, who)

	if queue.empty() {
		delete(b.waiting, lane)
	}

	return append(woken, waiter[W]{who, urgent})
}
