package bulkhead

import (
	"slices"
	"testing"
)

func TestEnter(t *testing.T) {
	t.Parallel()

	var woken []string

	b := New(func(who string) { woken = append(woken, who) })
	slow := []Lane{{"provider", 3}, {"slow", 2}, {"slow", 2}}
	fast := []Lane{{"fast", 2}, {"provider", 3}}

	var leave []func()

	for _, who := range []string{"a", "b"} {
		l, ok := b.Enter(who, slow)
		if !ok {
			t.Fatalf("%s is turned away from an empty lane", who)
		}

		leave = append(leave, l)
	}

	if _, ok := b.Enter("c", slow); ok {
		t.Error("a third has entered a lane for two")
	}

	if _, ok := b.Enter("c", slow); ok {
		t.Error("who asks again is let in")
	}

	other, ok := b.Enter("d", fast)
	if !ok {
		t.Fatal("a full store keeps another of the same provider out")
	}

	if _, ok := b.Enter("e", fast); ok {
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
