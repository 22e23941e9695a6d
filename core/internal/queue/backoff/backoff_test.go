package backoff

import (
	"testing"
	"time"
)

func TestBackoffGrowsAndEnds(t *testing.T) {
	t.Parallel()

	b := New(time.Second, time.Minute)

	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(seconds) * time.Second
		if got := b.Next("a", 0); got > want || got < want*9/10 {
			t.Errorf("pause %s, not within a tenth below %s", got, want)
		}
	}

	if got := b.Next("b", 0); got > time.Second {
		t.Errorf("one object's failures count for another: %s", got)
	}

	if got := b.Next("b", time.Hour); got != time.Hour {
		t.Errorf("what the backend asks for is cut to %s", got)
	}

	b.Forget("a")

	if got := b.Next("a", 0); got > time.Second {
		t.Errorf("a success is not remembered: %s", got)
	}

	// A shift beyond the width of the number must not bring the pause to zero.
	for range 100 {
		if got := b.Next("c", 0); got < 900*time.Millisecond {
			t.Fatalf("pause %s", got)
		}
	}
}
