package backoff

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()

	now := time.Unix(1000, 0)
	p := NewPace(time.Second, 4*time.Second)
	p.now = func() time.Time { return now }

	if p.Wait("a") != 0 {
		t.Fatal("the first time waits")
	}

	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		if got := p.Wait("a"); got != pause {
			t.Errorf("waits %s, not %s", got, pause)
		}

		now = now.Add(pause)

		if got := p.Wait("a"); got != 0 {
			t.Errorf("waits %s after the pause of %s", got, pause)
		}
	}

	if p.Wait("b") != 0 {
		t.Error("another object waits, too")
	}

	now = now.Add(time.Minute)

	if p.Wait("a") != 0 || p.Wait("a") != time.Second {
		t.Error("calm does not start it anew")
	}

	if p.Forget("a"); p.Wait("a") != 0 {
		t.Error("a forgotten object waits")
	}
}
