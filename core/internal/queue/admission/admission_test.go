package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// empty checks that nothing is left when everybody has gone.
func empty(t *testing.T, b *Limiter[string]) {
	t.Helper()

	if b.reading != 0 || b.woken != 0 || len(b.waiting) > 0 || len(b.flows) > 0 {
		t.Errorf("something is left: %+v", b)
	}
}

func TestTryAcquire(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, _ int) { woken = append(woken, who) })
	slow := []Flow{{"provider", 3, false}, {"slow", 2, false}, {"slow", 2, false}}
	fast := []Flow{{"fast", 2, false}, {"provider", 3, false}}

	var leave []func()

	for _, who := range []string{"a", "b"} {
		l, ok := b.TryAcquire(who, 1, slow)
		if !ok {
			t.Fatalf("%s is turned away from an empty lane", who)
		}

		leave = append(leave, l)
	}

	if _, ok := b.TryAcquire("c", 1, slow); ok {
		t.Error("a third has entered a lane for two")
	}

	if _, ok := b.TryAcquire("c", 1, slow); ok {
		t.Error("who asks again is let in")
	}

	other, ok := b.TryAcquire("d", 1, fast)
	if !ok {
		t.Fatal("a full store keeps another of the same provider out")
	}

	if _, ok := b.TryAcquire("e", 1, fast); ok {
		t.Error("a fourth has entered a provider for three")
	}

	leave[0]()

	if !slices.Equal(woken, []string{"c"}) {
		t.Fatalf("woken: %v; want c alone, for there is one place", woken)
	}

	// It wants no place any more: that is the next one's.
	b.Cancel("c")

	if !slices.Equal(woken, []string{"c", "e"}) {
		t.Fatalf("woken: %v; want e after c, who has passed", woken)
	}

	last, ok := b.TryAcquire("e", 1, fast)
	if !ok {
		t.Fatal("who was called finds no room")
	}

	leave[1]()
	other()
	last()
	empty(t, b)
}

// Many that nobody waits for must not keep out one that somebody does.
func TestUrgentComesFirst(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, urgency int) {
		if urgency != map[string]int{"first": 100, "changed": 50}[who] {
			t.Errorf("%s: urgency = %d", who, urgency)
		}

		woken = append(woken, who)
	})
	lane := []Flow{{"store", 4, false}}

	var leave []func()

	for _, who := range []string{"a", "b", "c"} {
		l, ok := b.TryAcquire(who, 0, lane)
		if !ok {
			t.Fatalf("%s is turned away", who)
		}

		leave = append(leave, l)
	}

	if _, ok := b.TryAcquire("d", 0, lane); ok {
		t.Error("no place is kept free")
	}

	if l, ok := b.TryAcquire("urgent", 100, lane); !ok {
		t.Error("the place that is kept free is not given")
	} else {
		leave = append(leave, l)
	}

	for who, urgency := range map[string]int{"changed": 50, "first": 0} {
		if _, ok := b.TryAcquire(who, urgency, lane); ok {
			t.Error("a fifth has entered a lane for four")
		}
	}

	// Who waits and becomes urgent waits no longer behind the others.
	if _, ok := b.TryAcquire("first", 100, lane); ok {
		t.Error("a fifth has entered a lane for four")
	}

	for i, want := range [][]string{{"first"}, {"first", "changed"}, {"first", "changed"}} {
		leave[i]()

		if !slices.Equal(woken, want) {
			t.Fatalf("after %d have left, woken: %v; want %v", i+1, woken, want)
		}
	}

	// One is under way and two are on the way: the fourth place is kept free,
	// until one of them gives up.
	b.Cancel("first")

	if !slices.Equal(woken, []string{"first", "changed", "d"}) {
		t.Errorf("woken: %v", woken)
	}

	b.Cancel("changed")
	b.Cancel("d")
	leave[3]()
	empty(t, b)
}

// Who waits and is let in another way, or wants nothing any more, is not called
// in the place of another.
func TestWhoWaitsNoLongerIsNotCalled(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, _ int) { woken = append(woken, who) })
	one, other := []Flow{{"one", 1, false}}, []Flow{{"other", 1, false}}

	first, _ := b.TryAcquire("a", 1, one)

	for _, who := range []string{"entered", "gone", "waiting"} {
		if _, ok := b.TryAcquire(who, 1, one); ok {
			t.Fatalf("%s has entered a full lane", who)
		}
	}

	second, ok := b.TryAcquire("entered", 1, other)
	if !ok {
		t.Fatal("an empty lane is full")
	}

	b.Cancel("gone")
	first()

	if !slices.Equal(woken, []string{"waiting"}) {
		t.Errorf("woken: %v", woken)
	}

	b.Cancel("waiting")
	second()
	empty(t, b)
}

// Who comes by itself may take a place that another was called for; the other
// is then the first to be called again.
func TestWhoFindsItsPlaceTakenIsNext(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, _ int) { woken = append(woken, who) })
	one := []Flow{{"one", 1, false}}

	leave, _ := b.TryAcquire("a", 1, one)
	b.TryAcquire("b", 1, one)
	b.TryAcquire("c", 1, one)
	leave()

	leave, ok := b.TryAcquire("quick", 1, one)
	if !ok {
		t.Fatal("a place is kept free for somebody who may not come")
	}

	if _, ok := b.TryAcquire("b", 1, one); ok {
		t.Fatal("two are in a lane for one")
	}

	leave()

	if !slices.Equal(woken, []string{"b", "b"}) {
		t.Errorf("woken: %v; want b twice, before c", woken)
	}
}

// One store alone uses more than its share, but never all there is.
func TestElastic(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(8, func(who string, _ int) { woken = append(woken, who) })
	slow := []Flow{{"slow", 2, true}}
	fast := []Flow{{"fast", 2, true}}

	var leave []func()

	enter := func(flows []Flow, want int) {
		t.Helper()

		for i := range want {
			l, ok := b.TryAcquire(flows[0].Name, 1, flows)
			if !ok {
				t.Fatalf("%s is turned away at its place %d; %d are under way", flows[0].Name, i+1, b.reading)
			}

			leave = append(leave, l)
		}

		if _, ok := b.TryAcquire(flows[0].Name, 1, flows); ok {
			t.Errorf("%s has entered with %d under way", flows[0].Name, b.reading)
		}
	}

	enter(slow, 4)
	// Half of the places is left to others, and to each of them its share.
	enter(fast, 2)

	for _, l := range leave[:4] {
		l()
	}

	// The fast lane is as full as before, but it may take more now: who waits
	// for it must be told, though nobody has left it.
	if slices.Sort(woken); !slices.Equal(woken, []string{"fast", "slow"}) {
		t.Errorf("woken: %v", woken)
	}

	b.Cancel("slow")
	enter(fast, 2)
	b.Cancel("fast")

	for _, l := range leave[4:] {
		l()
	}

	empty(t, b)
}

// Whatever is asked for in whatever order: nobody waits while there is room for
// it, no lane holds more than it may, and nothing is left in the end.
func TestNobodyWaitsWhereThereIsRoom(t *testing.T) {
	t.Parallel()

	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		places := random.IntN(20)

		var woken []string

		b := New(places, func(who string, _ int) { woken = append(woken, who) })

		all := make([]Flow, 1+random.IntN(6))
		for i := range all {
			all[i] = Flow{Name: fmt.Sprint("lane ", i), Share: 1 + random.IntN(4), Elastic: random.IntN(2) == 0}
		}

		type inside struct {
			who   string
			leave func()
		}

		var (
			under []inside
			asked = map[string]struct {
				urgency int
				flows   []Flow
			}{}
		)

		try := func(who string) {
			ask := asked[who]

			// Sometimes it wants something else by now, or nothing.
			switch random.IntN(6) {
			case 0:
				ask.urgency, ask.flows = random.IntN(3)*50, choose(random, all)
				asked[who] = ask
			case 1:
				delete(asked, who)
				b.Cancel(who)

				return
			}

			if leave, ok := b.TryAcquire(who, ask.urgency, ask.flows); ok {
				delete(asked, who)
				under = append(under, inside{who, leave})
			}
		}

		check := func() {
			t.Helper()

			for len(woken) > 0 {
				who := woken[0]
				woken = woken[1:]
				try(who)
			}

			for who, w := range b.waiting {
				if b.room(w.blocked, w.priority, false) {
					t.Fatalf("seed %d: %s waits, and there is room in %v", seed, who, w.blocked)
				}
			}

			for who := range asked {
				if _, waits := b.waiting[who]; !waits {
					t.Fatalf("seed %d: %s was turned away, and is forgotten", seed, who)
				}
			}

			if b.woken != 0 || b.reading != len(under) {
				t.Fatalf("seed %d: miscounted: %+v", seed, b)
			}
		}

		for step := range 300 {
			if len(under) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(under))
				leave := under[i].leave
				under = slices.Delete(under, i, i+1)
				leave()
			} else {
				who := fmt.Sprint("w", step)
				asked[who] = struct {
					urgency int
					flows   []Flow
				}{random.IntN(3) * 50, choose(random, all)}
				try(who)
			}

			check()
		}

		for len(under) > 0 || len(asked) > 0 {
			for _, i := range under {
				under = under[1:]
				i.leave()
			}

			check()
		}

		empty(t, b)
	}
}

func choose(random *rand.Rand, all []Flow) []Flow {
	var some []Flow

	for range 1 + random.IntN(3) {
		some = append(some, all[random.IntN(len(all))])
	}

	return some
}

// Ten thousand that wait cost no more than ten.
func TestManyWait(t *testing.T) {
	t.Parallel()

	const waiting, stores = 10_000, 100

	var woken []int

	b := New(64, func(who, _ int) { woken = append(woken, who) })
	lanes := func(who int) []Flow {
		return []Flow{{"provider", 48, false}, {fmt.Sprint("store ", who%stores), 8, true}}
	}

	began := time.Now()

	var leave []func()

	for who := range waiting {
		if l, ok := b.TryAcquire(who, 0, lanes(who)); ok {
			leave = append(leave, l)
		}
	}

	done := 0

	for len(leave) > 0 {
		leave[0]()

		leave = leave[1:]
		done++

		for _, who := range woken {
			l, ok := b.TryAcquire(who, 0, lanes(who))
			if !ok {
				t.Fatalf("%d was called, and there is no room", who)
			}

			leave = append(leave, l)
		}

		woken = nil
	}

	if took := time.Since(began); done != waiting || took > 2*time.Second {
		t.Errorf("%d of %d in %s", done, waiting, took)
	}
}
