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
		if got := b.Step(); got < want || got > want*11/10 {
			t.Errorf("pause %s, not within a tenth above %s", got, want)
		}
	}

	for range 100 {
		if got := b.Step(); got < time.Minute {
			t.Fatalf("pause %s", got)
		}
	}
}
