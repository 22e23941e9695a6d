package admission

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// empty checks that the Limiter has no state left after all have released.
func empty(t *testing.T, b *Limiter[string]) {
	t.Helper()

	if b.reading != 0 || b.woken != 0 || len(b.waiting) > 0 || len(b.flows) > 0 {
		t.Errorf("the Limiter is not empty: %+v", b)
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
			t.Fatalf("%s is rejected by an empty flow", who)
		}

		leave = append(leave, l)
	}

	if _, ok := b.TryAcquire("c", 1, slow); ok {
		t.Error("a third is admitted to a flow with a share of two")
	}

	if _, ok := b.TryAcquire("c", 1, slow); ok {
		t.Error("a second attempt is admitted")
	}

	other, ok := b.TryAcquire("d", 1, fast)
	if !ok {
		t.Fatal("a full store blocks another store of the same provider")
	}

	if _, ok := b.TryAcquire("e", 1, fast); ok {
		t.Error("a fourth is admitted to a provider with a share of three")
	}

	leave[0]()

	if !slices.Equal(woken, []string{"c"}) {
		t.Fatalf("woken: %v; want only c, because one place is free", woken)
	}

	// The place of a canceled waiter is granted to the next one.
	b.Cancel("c")

	if !slices.Equal(woken, []string{"c", "e"}) {
		t.Fatalf("woken: %v; want e after c, which was canceled", woken)
	}

	last, ok := b.TryAcquire("e", 1, fast)
	if !ok {
		t.Fatal("the waiter that was woken is not admitted")
	}

	leave[1]()
	other()
	last()
	empty(t, b)
}

// Many waiters of low priority must not block one of high priority.
func TestHighPriorityComesFirst(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, priority int) {
		if priority != map[string]int{"first": 100, "changed": 50}[who] {
			t.Errorf("%s: priority = %d", who, priority)
		}

		woken = append(woken, who)
	})
	flow := []Flow{{"store", 4, false}}

	var leave []func()

	for _, who := range []string{"a", "b", "c"} {
		l, ok := b.TryAcquire(who, 0, flow)
		if !ok {
			t.Fatalf("%s is rejected", who)
		}

		leave = append(leave, l)
	}

	if _, ok := b.TryAcquire("d", 0, flow); ok {
		t.Error("no place is reserved")
	}

	if l, ok := b.TryAcquire("high", 100, flow); !ok {
		t.Error("the reserved place is not granted")
	} else {
		leave = append(leave, l)
	}

	for who, priority := range map[string]int{"changed": 50, "first": 0} {
		if _, ok := b.TryAcquire(who, priority, flow); ok {
			t.Error("a fifth is admitted to a flow with a share of four")
		}
	}

	// A waiter whose priority is raised is moved before the others.
	if _, ok := b.TryAcquire("first", 100, flow); ok {
		t.Error("a fifth is admitted to a flow with a share of four")
	}

	for i, want := range [][]string{{"first"}, {"first", "changed"}, {"first", "changed"}} {
		leave[i]()

		if !slices.Equal(woken, want) {
			t.Fatalf("after %d releases, woken: %v; want %v", i+1, woken, want)
		}
	}

	// One is admitted and two are woken: the fourth place is reserved until one of
	// them is canceled.
	b.Cancel("first")

	if !slices.Equal(woken, []string{"first", "changed", "d"}) {
		t.Errorf("woken: %v", woken)
	}

	b.Cancel("changed")
	b.Cancel("d")
	leave[3]()
	empty(t, b)
}

// A waiter that was admitted to another flow, or canceled, is not woken in place
// of the next one.
func TestFormerWaitersAreNotWoken(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, _ int) { woken = append(woken, who) })
	one, other := []Flow{{"one", 1, false}}, []Flow{{"other", 1, false}}

	first, _ := b.TryAcquire("a", 1, one)

	for _, who := range []string{"admitted", "canceled", "waiting"} {
		if _, ok := b.TryAcquire(who, 1, one); ok {
			t.Fatalf("%s is admitted to a full flow", who)
		}
	}

	second, ok := b.TryAcquire("admitted", 1, other)
	if !ok {
		t.Fatal("an empty flow is full")
	}

	b.Cancel("canceled")
	first()

	if !slices.Equal(woken, []string{"waiting"}) {
		t.Errorf("woken: %v", woken)
	}

	b.Cancel("waiting")
	second()
	empty(t, b)
}

// A new caller may take the place for which a waiter was woken; the waiter is then
// the first to be woken again.
func TestAWokenWaiterWithoutAPlaceIsNext(t *testing.T) {
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
		t.Fatal("a place is reserved for a woken waiter")
	}

	if _, ok := b.TryAcquire("b", 1, one); ok {
		t.Fatal("two are admitted to a flow with a share of one")
	}

	leave()

	if !slices.Equal(woken, []string{"b", "b"}) {
		t.Errorf("woken: %v; want b twice, before c", woken)
	}
}

// A single store uses more than its share, but never all places.
func TestElastic(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(8, func(who string, _ int) { woken = append(woken, who) })
	slow := []Flow{{"slow", 2, true}}
	fast := []Flow{{"fast", 2, true}}

	var leave []func()

	acquire := func(flows []Flow, want int) {
		t.Helper()

		for i := range want {
			l, ok := b.TryAcquire(flows[0].Name, 1, flows)
			if !ok {
				t.Fatalf("%s is rejected at its place %d; %d are admitted", flows[0].Name, i+1, b.reading)
			}

			leave = append(leave, l)
		}

		if _, ok := b.TryAcquire(flows[0].Name, 1, flows); ok {
			t.Errorf("%s is admitted with %d already admitted", flows[0].Name, b.reading)
		}
	}

	acquire(slow, 4)
	// Half of the places remain for others, and for each of them its share.
	acquire(fast, 2)

	for _, l := range leave[:4] {
		l()
	}

	// The fast flow has as many grants as before, but its limit has grown: its
	// waiter must be woken, although none of its grants was released.
	if slices.Sort(woken); !slices.Equal(woken, []string{"fast", "slow"}) {
		t.Errorf("woken: %v", woken)
	}

	b.Cancel("slow")
	acquire(fast, 2)
	b.Cancel("fast")

	for _, l := range leave[4:] {
		l()
	}

	empty(t, b)
}

// For random requests in random order, no caller waits while there is a free place
// for it, no flow exceeds its share, and no state is left at the end.
func TestNoWaiterWhileThereIsRoom(t *testing.T) {
	t.Parallel()

	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
		places := random.IntN(20)

		var woken []string

		b := New(places, func(who string, _ int) { woken = append(woken, who) })

		all := make([]Flow, 1+random.IntN(6))
		for i := range all {
			all[i] = Flow{Name: fmt.Sprint("flow ", i), Share: 1 + random.IntN(4), Elastic: random.IntN(2) == 0}
		}

		type inside struct {
			who   string
			leave func()
		}

		var (
			under []inside
			asked = map[string]struct {
				priority int
				flows    []Flow
			}{}
		)

		try := func(who string) {
			ask := asked[who]

			// Sometimes the request has changed or is canceled.
			switch random.IntN(6) {
			case 0:
				ask.priority, ask.flows = random.IntN(3)*50, choose(random, all)
				asked[who] = ask
			case 1:
				delete(asked, who)
				b.Cancel(who)

				return
			}

			if leave, ok := b.TryAcquire(who, ask.priority, ask.flows); ok {
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
					t.Fatalf("seed %d: %s waits although there is room in %v", seed, who, w.blocked)
				}
			}

			for who := range asked {
				if _, waits := b.waiting[who]; !waits {
					t.Fatalf("seed %d: %s was rejected and does not wait", seed, who)
				}
			}

			if b.woken != 0 || b.reading != len(under) {
				t.Fatalf("seed %d: wrong counts: %+v", seed, b)
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
					priority int
					flows    []Flow
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

// The cost per waiter does not depend on their number.
func TestManyWait(t *testing.T) {
	t.Parallel()

	const waiting, stores = 10_000, 100

	var woken []int

	b := New(64, func(who, _ int) { woken = append(woken, who) })
	flows := func(who int) []Flow {
		return []Flow{{"provider", 48, false}, {fmt.Sprint("store ", who%stores), 8, true}}
	}

	began := time.Now()

	var leave []func()

	for who := range waiting {
		if l, ok := b.TryAcquire(who, 0, flows(who)); ok {
			leave = append(leave, l)
		}
	}

	done := 0

	for len(leave) > 0 {
		leave[0]()

		leave = leave[1:]
		done++

		for _, who := range woken {
			l, ok := b.TryAcquire(who, 0, flows(who))
			if !ok {
				t.Fatalf("%d was woken, and there is no room", who)
			}

			leave = append(leave, l)
		}

		woken = nil
	}

	if took := time.Since(began); done != waiting || took > 2*time.Second {
		t.Errorf("%d of %d in %s", done, waiting, took)
	}
}

// A tenant with thousands of objects of slow stores delays the first sync of
// another tenant's store of the same provider by one turn, not by all of them.
func TestLinesTakeTurns(t *testing.T) {
	t.Parallel()

	var woken []string

	l := New(64, func(who string, _ int) { woken = append(woken, who) })
	provider := Flow{Name: "provider", Share: 2}
	flows := func(store string) []Flow { return []Flow{provider, {Name: store, Share: 8}} }

	first, _ := l.TryAcquire("first", 100, flows("slow-1"))
	second, _ := l.TryAcquire("second", 100, flows("slow-2"))

	for i := range 1000 {
		for _, store := range []string{"slow-1", "slow-2"} {
			if _, ok := l.TryAcquire(fmt.Sprintf("%s/%d", store, i), 100, flows(store)); ok {
				t.Fatal("the provider has room for three")
			}
		}
	}

	if _, ok := l.TryAcquire("victim", 100, flows("victims")); ok {
		t.Fatal("the provider has room for three")
	}

	release := []func(){first, second}

	for range 4 {
		release[0]()

		release = release[1:]

		for _, who := range woken[len(woken)-1:] {
			if who == "victim" {
				return
			}

			store, _, _ := strings.Cut(who, "/")
			leave, ok := l.TryAcquire(who, 100, flows(store))
			if !ok {
				t.Fatalf("%s was woken and is not admitted", who)
			}

			release = append(release, leave)
		}
	}

	t.Errorf("the other tenant's object is not among the first four: %v", woken)
}

// An object that was woken keeps its place when another flow has no room.
func TestAWokenWaiterKeepsItsPlaceInAnotherFlow(t *testing.T) {
	t.Parallel()

	var woken []string

	l := New(64, func(who string, _ int) { woken = append(woken, who) })
	both := []Flow{{Name: "provider", Share: 1}, {Name: "store", Share: 1}}
	busy, _ := l.TryAcquire("busy", 1, both[1:])

	for _, who := range []string{"first", "later"} {
		if _, ok := l.TryAcquire(who, 1, both); ok {
			t.Fatalf("%s is admitted to a busy store", who)
		}
	}

	busy()

	newcomer, ok := l.TryAcquire("newcomer", 1, both[:1])
	if !ok {
		t.Fatal("a newcomer is not admitted to an idle provider")
	}

	if _, ok := l.TryAcquire("first", 1, both); ok {
		t.Fatal("the provider admits two")
	}

	newcomer()

	if diff := cmp.Diff([]string{"first", "first"}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}
