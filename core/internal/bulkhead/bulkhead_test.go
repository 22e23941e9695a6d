package bulkhead

import (
	"slices"
	"testing"
)

func TestEnter(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, _ bool) { woken = append(woken, who) })
	slow := []Lane{{"provider", 3, false}, {"slow", 2, false}, {"slow", 2, false}}
	fast := []Lane{{"fast", 2, false}, {"provider", 3, false}}

	var leave []func()

	for _, who := range []string{"a", "b"} {
		l, ok := b.Enter(who, true, slow)
		if !ok {
			t.Fatalf("%s is turned away from an empty lane", who)
		}

		leave = append(leave, l)
	}

	if _, ok := b.Enter("c", true, slow); ok {
		t.Error("a third has entered a lane for two")
	}

	if _, ok := b.Enter("c", true, slow); ok {
		t.Error("who asks again is let in")
	}

	other, ok := b.Enter("d", true, fast)
	if !ok {
		t.Fatal("a full store keeps another of the same provider out")
	}

	if _, ok := b.Enter("e", true, fast); ok {
		t.Error("a fourth has entered a provider for three")
	}

	leave[0]()

	if !slices.Equal(woken, []string{"e", "c"}) {
		t.Errorf("woken: %v; want e, who waits for the provider, and c once, who waits for the store", woken)
	}

	leave[1]()
	other()

	if len(b.inUse) > 0 || len(b.waiting) > 0 || len(b.parked) > 0 {
		t.Errorf("something is left: %+v", b)
	}
}

// Many that nobody waits for must not keep out one that somebody does.
func TestUrgentComesFirst(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(0, func(who string, urgent bool) {
		if urgent != (who == "urgent") {
			t.Errorf("%s: urgent = %t", who, urgent)
		}

		woken = append(woken, who)
	})
	lane := []Lane{{"store", 4, false}}

	var leave []func()

	for _, who := range []string{"a", "b", "c"} {
		l, ok := b.Enter(who, false, lane)
		if !ok {
			t.Fatalf("%s is turned away", who)
		}

		leave = append(leave, l)
	}

	if _, ok := b.Enter("d", false, lane); ok {
		t.Error("no place is kept free")
	}

	if l, ok := b.Enter("first", true, lane); !ok {
		t.Error("the place that is kept free is not given")
	} else {
		leave = append(leave, l)
	}

	if _, ok := b.Enter("urgent", true, lane); ok {
		t.Error("a fifth has entered a lane for four")
	}

	// Who waits and becomes urgent waits no longer behind the others.
	leave[0]()
	leave[1]()

	if !slices.Equal(woken, []string{"urgent", "d"}) {
		t.Errorf("woken: %v", woken)
	}
}

// One store alone uses more than its share, but never all there is.
func TestElastic(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(8, func(who string, _ bool) { woken = append(woken, who) })
	slow := []Lane{{"slow", 2, true}}
	fast := []Lane{{"fast", 2, true}}

	var leave []func()

	enter := func(lanes []Lane, want int) {
		t.Helper()

		for i := range want {
			l, ok := b.Enter(lanes[0].Name, true, lanes)
			if !ok {
				t.Fatalf("%s is turned away at its place %d; %d are under way", lanes[0].Name, i+1, b.entered)
			}

			leave = append(leave, l)
		}

		if _, ok := b.Enter(lanes[0].Name, true, lanes); ok {
			t.Errorf("%s has entered with %d under way", lanes[0].Name, b.entered)
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
	if !slices.Equal(woken, []string{"slow", "fast"}) {
		t.Errorf("woken: %v", woken)
	}

	enter(fast, 2)

	for _, l := range leave[4:] {
		l()
	}

	if b.entered != 0 || len(b.inUse) > 0 || len(b.waiting) > 0 {
		t.Errorf("something is left: %+v", b)
	}
}
