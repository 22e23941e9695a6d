package circuit

import (
	"errors"
	"slices"
	"testing"
	"time"
)

type failure struct{ error }

var lost = failure{errors.New("lost")}

// clock is a circuit with a time that the test sets.
func clock(closed func(string)) (*Breakers[failure], *time.Time) {
	now := time.Unix(1000, 0)
	b := New[failure](time.Second, 4*time.Second, closed)
	b.now = func() time.Time { return now }

	return b, &now
}

// call makes a call and reports whether it was let through.
func call(b *Breakers[failure], verdict Verdict) bool {
	done, _, _ := b.Allow("x")
	if done == nil {
		return false
	}

	done(verdict, lost)

	return true
}

func TestOneLostCallChangesNothing(t *testing.T) {
	t.Parallel()

	b, _ := clock(nil)

	for range 10 {
		for _, verdict := range []Verdict{Suspect, Suspect, Success} {
			if !call(b, verdict) {
				t.Fatal("the circuit has opened although calls come through in between")
			}
		}
	}
}

func TestFailuresInARowOpenIt(t *testing.T) {
	t.Parallel()

	var closed []string

	b, now := clock(func(name string) { closed = append(closed, name) })

	for range tolerated + 1 {
		if !call(b, Suspect) {
			t.Fatal("it opened too early")
		}
	}

	done, last, after := b.Allow("x")
	if done != nil || last != lost || after != time.Second {
		t.Fatalf("it is not open: %v, %s", last, after)
	}

	if !call2(b, "y") {
		t.Error("another one's circuit is open, too")
	}

	// One at a time may try, at growing intervals.
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		*now = now.Add(pause - time.Millisecond)

		if call(b, Suspect) {
			t.Fatalf("it was tried before %s were over", pause)
		}

		*now = now.Add(time.Millisecond)

		probe, _, _ := b.Allow("x")
		if probe == nil {
			t.Fatalf("it may not be tried after %s", pause)
		}

		if call(b, Success) {
			t.Fatal("two try at the same time")
		}

		probe(Suspect, lost)
	}

	*now = now.Add(4 * time.Second)

	for range 2 {
		if !call(b, Success) {
			t.Error("a success does not close it")
		}
	}

	if !slices.Equal(closed, []string{"x"}) {
		t.Errorf("those that closed: %v", closed)
	}
}

func call2(b *Breakers[failure], name string) bool {
	done, _, _ := b.Allow(name)

	return done != nil
}

func TestCertainFailureOpensItAtOnce(t *testing.T) {
	t.Parallel()

	b, _ := clock(nil)

	if !call(b, Certain) || call(b, Success) {
		t.Error("it is not open after a certain failure")
	}
}

// A failure that concerns one caller must neither open nor close the circuit.
func TestNeutralFailuresChangeNothing(t *testing.T) {
	t.Parallel()

	b, now := clock(func(string) { t.Error("it counts as closed") })

	for range 10 * tolerated {
		if !call(b, Neutral) {
			t.Fatal("it is open")
		}
	}

	call(b, Certain)

	*now = now.Add(time.Second)

	if !call(b, Neutral) || !call(b, Certain) {
		t.Error("no probe finds out whether the store has recovered")
	}

	if call(b, Success) {
		t.Error("it is closed")
	}
}

// Calls that were under way when the circuit opened all fail; they must not
// make the pause longer each.
func TestLateFailuresCountOnce(t *testing.T) {
	t.Parallel()

	b, now := clock(nil)

	var under []func(Verdict, failure)

	for range 5 {
		done, _, _ := b.Allow("x")
		under = append(under, done)
	}

	for _, done := range under {
		done(Certain, lost)
	}

	*now = now.Add(time.Second)

	if !call(b, Success) {
		t.Error("five failures at the same time have lengthened the pause")
	}
}

func TestUnusedCircuitsAreForgotten(t *testing.T) {
	t.Parallel()

	b, now := clock(nil)
	call(b, Success)

	*now = now.Add(2 * forgotten)
	call2(b, "y")

	if _, ok := b.byName["x"]; ok {
		t.Error("an unused circuit is kept")
	}
}
