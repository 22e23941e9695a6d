// Package admission bounds the syncs that may be under way through one store
// and one provider, so that those of a slow one do not take up all workers.
// Nobody waits: who finds no room is called when there is some, the most urgent
// first; a quarter of each lane is kept free for what is urgent at all.
//
// An elastic lane may take more than its share of what nobody else uses, up to
// half of all places: the only store there is need not leave workers idle, and
// one that is slow still leaves the other half to the rest.
//
// Who is called must come back, by Enter or by Pass: until then, the room that
// it was called for is not given to another who waits. Room that it does not
// take is offered to the next, so that nobody waits where there is room.
package admission

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Bulkhead counts what is under way by lane.
type Bulkhead[W comparable] struct {
	wake func(who W, urgency int)
	// spare is how many may be under way in all while elastic lanes still take
	// more than their share.
	spare int

	mu sync.Mutex
	// entered and called are how many are under way, or called, in all.
	entered, called int
	lanes           map[string]*lane[W]
	// lines of those who wait for the same lanes with the same urgency, by their
	// name, and all of them in the order of their turns.
	lines map[string]*line[W]
	turns turns[W]
	// urgencies that were ever asked for, the most urgent first.
	urgencies []int
	// parked are those who wait, callees those who were called and have not
	// come back yet.
	parked  map[W]place[W]
	callees map[W]*line[W]
}

// Lane is what a sync goes through.
type Lane struct {
	Name string
	// Share is how many may use it at the same time, whatever the others do.
	Share int
	// Elastic lanes take more while less than half of all places are in use.
	Elastic bool
}

// lane in use.
type lane[W comparable] struct {
	inUse, called int
	turns         turns[W]
}

// turns are lines by their urgency, the next to be served first.
type turns[W comparable] map[int]*list.List

// line of those who wait for the same lanes. All of them find room, or none.
type line[W comparable] struct {
	name    string
	lanes   []Lane
	urgency int
	waiting *list.List // of W
	// turns are where the line stands: those of each lane, and those of all.
	turns []*turn
}

type turn struct {
	in      *list.List
	element *list.Element
}

type place[W comparable] struct {
	line    *line[W]
	element *list.Element
}

// New makes a bulkhead of so many places in all. wake is called with each of
// those that were turned away, when it may try again; it must not block.
func New[W comparable](places int, wake func(who W, urgency int)) *Bulkhead[W] {
	return &Bulkhead[W]{
		wake: wake, spare: places / 2, lanes: map[string]*lane[W]{}, lines: map[string]*line[W]{}, turns: turns[W]{},
		parked: map[W]place[W]{}, callees: map[W]*line[W]{},
	}
}

// Enter takes a place in every lane, or in none. What is more urgent has the
// larger number; 0 is what nobody waits for. Where ok is false, who is called as
// soon as there is room.
func (b *Bulkhead[W]) Enter(who W, urgency int, lanes []Lane) (leave func(), ok bool) {
	lanes = slices.Clone(lanes)
	slices.SortFunc(lanes, func(a, c Lane) int { return cmp.Compare(a.Name, c.Name) })
	lanes = slices.CompactFunc(lanes, func(a, c Lane) bool { return a.Name == c.Name })

	b.mu.Lock()

	wasCalled := b.returned(who)

	if ok = b.room(lanes, urgency, 0); ok {
		b.unpark(who)

		b.entered++
		for _, l := range lanes {
			b.lane(l.Name).inUse++
		}
	} else {
		b.park(who, urgency, lanes, wasCalled)
	}

	var called []callee[W]
	if wasCalled != nil {
		called = b.serve(wasCalled.lanes)
	}

	b.mu.Unlock()
	b.call(called)

	if !ok {
		return nil, false
	}

	return func() { b.leave(lanes) }, true
}

// Pass tells that who wants no place now: it waits no longer, and the room that
// it may have been called for is another's.
func (b *Bulkhead[W]) Pass(who W) {
	b.mu.Lock()

	b.unpark(who)

	var called []callee[W]
	if wasCalled := b.returned(who); wasCalled != nil {
		called = b.serve(wasCalled.lanes)
	}

	b.mu.Unlock()
	b.call(called)
}

func (b *Bulkhead[W]) leave(lanes []Lane) {
	b.mu.Lock()

	b.entered--
	for _, l := range lanes {
		b.lane(l.Name).inUse--
	}

	called := b.serve(lanes)

	b.mu.Unlock()
	b.call(called)
}

// room tells whether another may use all lanes. For those who wait, called is 1:
// the places that others have been called for count as taken. For who comes by
// itself it is 0: no place is kept free for somebody on the way.
func (b *Bulkhead[W]) room(lanes []Lane, urgency, called int) bool {
	return !slices.ContainsFunc(lanes, func(l Lane) bool {
		share, spare := l.Share, b.spare
		if urgency <= 0 {
			share, spare = max(1, share-share/4), spare-spare/4
		}

		inUse := 0
		if known, ok := b.lanes[l.Name]; ok {
			inUse = known.inUse + called*known.called
		}

		return inUse >= share && (!l.Elastic || b.entered+called*b.called >= spare)
	})
}

// lane of a name.
func (b *Bulkhead[W]) lane(name string) *lane[W] {
	known, ok := b.lanes[name]
	if !ok {
		known = &lane[W]{turns: turns[W]{}}
		b.lanes[name] = known
	}

	return known
}

// park puts who into the line of its lanes, once. Who was called for the same
// and found the room taken is the next again.
func (b *Bulkhead[W]) park(who W, urgency int, lanes []Lane, wasCalled *line[W]) {
	name := nameOf(lanes, urgency)

	if at, waits := b.parked[who]; waits {
		if at.line.name == name {
			return
		}

		b.unpark(who)
	}

	l, ok := b.lines[name]
	if !ok {
		l = &line[W]{name: name, lanes: lanes, urgency: urgency, waiting: list.New()}
		b.lines[name] = l
		b.queue(l, b.turns)

		for _, through := range lanes {
			b.queue(l, b.lane(through.Name).turns)
		}
	}

	element := l.waiting.PushBack(who)
	if wasCalled != nil && wasCalled.name == name {
		l.waiting.MoveToFront(element)
	}

	b.parked[who] = place[W]{l, element}
}

func nameOf(lanes []Lane, urgency int) string {
	var name strings.Builder

	fmt.Fprint(&name, urgency)

	for _, l := range lanes {
		name.WriteByte(0)
		name.WriteString(l.Name)
	}

	return name.String()
}

// queue lets a line take part in turns.
func (b *Bulkhead[W]) queue(l *line[W], in turns[W]) {
	if in[l.urgency] == nil {
		in[l.urgency] = list.New()
	}

	if at, known := slices.BinarySearchFunc(b.urgencies, l.urgency, func(a, c int) int { return cmp.Compare(c, a) }); !known {
		b.urgencies = slices.Insert(b.urgencies, at, l.urgency)
	}

	l.turns = append(l.turns, &turn{in[l.urgency], in[l.urgency].PushBack(l)})
}

// unpark takes who out of its line.
func (b *Bulkhead[W]) unpark(who W) {
	at, waits := b.parked[who]
	if !waits {
		return
	}

	delete(b.parked, who)
	at.line.waiting.Remove(at.element)

	if at.line.waiting.Len() > 0 {
		return
	}

	delete(b.lines, at.line.name)

	for _, t := range at.line.turns {
		t.in.Remove(t.element)
	}

	b.tidy(at.line.lanes)
}

// tidy drops lanes that nobody uses or waits for.
func (b *Bulkhead[W]) tidy(lanes []Lane) {
	for _, l := range lanes {
		if known, ok := b.lanes[l.Name]; ok && known.inUse == 0 && known.called == 0 && known.turns.empty() {
			delete(b.lanes, l.Name)
		}
	}
}

// returned takes who out of those that were called, and gives the line that it
// was called from; nil where it was not called.
func (b *Bulkhead[W]) returned(who W) *line[W] {
	l, ok := b.callees[who]
	if !ok {
		return nil
	}

	delete(b.callees, who)

	b.called--
	for _, through := range l.lanes {
		b.lane(through.Name).called--
	}

	return l
}

type callee[W comparable] struct {
	who     W
	urgency int
}

// serve calls those for whom there is room after something has become free in
// lanes.
func (b *Bulkhead[W]) serve(freed []Lane) (called []callee[W]) {
	for _, l := range freed {
		called = b.take(called, b.lane(l.Name).turns, func(urgency int) bool { return b.room([]Lane{l}, urgency, 1) })
	}

	// Elastic lanes may have room though nobody has left them.
	called = b.take(called, b.turns, func(urgency int) bool {
		spare := b.spare
		if urgency <= 0 {
			spare -= spare / 4
		}

		return b.entered+b.called < spare
	})

	b.tidy(freed)

	return called
}

// take calls the first of each line in turn, while there may be room for any.
// A line that has none, because it waits for another lane, too, is passed over:
// there are no more of these than full lanes.
func (b *Bulkhead[W]) take(called []callee[W], from turns[W], mayBe func(urgency int) bool) []callee[W] {
	for _, urgency := range b.urgencies {
		lines := from[urgency]
		if lines == nil {
			continue
		}

		for passed := 0; passed < lines.Len() && mayBe(urgency); {
			element := lines.Front()
			lines.MoveToBack(element)

			l, _ := element.Value.(*line[W])
			if !b.room(l.lanes, urgency, 1) {
				passed++

				continue
			}

			who, _ := l.waiting.Front().Value.(W)
			b.callees[who] = l

			b.called++
			for _, through := range l.lanes {
				b.lane(through.Name).called++
			}

			b.unpark(who)

			called = append(called, callee[W]{who, urgency})
			passed = 0
		}
	}

	return called
}

func (t turns[W]) empty() bool {
	for _, lines := range t {
		if lines.Len() > 0 {
			return false
		}
	}

	return true
}

func (b *Bulkhead[W]) call(called []callee[W]) {
	for _, c := range called {
		b.wake(c.who, c.urgency)
	}
}
