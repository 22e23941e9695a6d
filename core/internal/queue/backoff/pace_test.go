package backoff

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()

	now := time.Unix(1000, 0)
	p := NewPace(time.Second, 4*time.Second)

	if p.Wait(now) != 0 {
		t.Fatal("the first event waits")
	}

	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if got := p.Wait(now); got != pause {
			t.Errorf("waits %s, not %s", got, pause)
		}

		now = now.Add(pause)

		if got := p.Wait(now); got != 0 {
			t.Errorf("waits %s after the pause of %s", got, pause)
		}
	}

	now = now.Add(time.Minute)

	if p.Wait(now) != 0 || p.Wait(now) != time.Second {
		t.Error("a quiet time does not start it again")
	}
}
