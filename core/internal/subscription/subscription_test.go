package subscription

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder runs watches that do nothing but count.
type recorder struct {
	*Watches[string, string, *atomic.Int32]

	started, running atomic.Int32
	// linger holds back the end of watches until it is closed.
	linger chan struct{}
}

func record(t *testing.T, limit int) *recorder {
	t.Helper()

	r := &recorder{linger: make(chan struct{})}
	r.Watches = New(Options[string, string, *atomic.Int32]{
		New: func(string) *atomic.Int32 { return &atomic.Int32{} },
		Run: func(ctx context.Context, _ string, _ *atomic.Int32) {
			r.started.Add(1)

			if r.running.Add(1) > 2 {
				t.Error("runs of one key overlap")
			}

			<-ctx.Done()
			<-r.linger
			r.running.Add(-1)
		},
		Max: limit,
	})

	return r
}

func TestOneWatchPerKeyAsLongAsItHasSubscribers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t, 0)
		close(r.linger)

		a, b := r.Subscribe("a"), r.Subscribe("b")
		a.Replace("one", "two", "two")
		b.Replace("one")
		synctest.Wait()

		if n := r.started.Load(); n != 2 {
			t.Errorf("%d watches of two keys", n)
		}

		subscribers := r.Subscribers("one")
		slices.Sort(subscribers)

		if !slices.Equal(subscribers, []string{"a", "b"}) {
			t.Errorf("subscribers: %v", subscribers)
		}

		state, ok := r.Watch("one")
		a.Replace("two")
		a.Replace("two", "one")

		if again, _ := r.Watch("one"); !ok || again != state {
			t.Error("a watch that has a subscriber left is started again")
		}

		a.Close()
		b.Close()
		synctest.Wait()

		if r.Len() != 0 || r.running.Load() != 0 || r.started.Load() != 2 {
			t.Errorf("%d keys are left, %d of %d watches run", r.Len(), r.running.Load(), r.started.Load())
		}

		if _, ok := r.Watch("one"); ok || r.Subscribers("one") != nil {
			t.Error("a watch without subscribers is returned")
		}

		r.Stop()
	})
}

// The cleanup of a watch must not undo what its successor has begun.
func TestAWatchWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t, 0)
		a := r.Subscribe("a")

		a.Replace("one")
		synctest.Wait()

		for range 3 {
			a.Close()
			a.Replace("one")
		}

		synctest.Wait()

		if n := r.started.Load(); n != 1 {
			t.Errorf("%d watches were started while the first had not ended", n)
		}

		close(r.linger)
		synctest.Wait()

		if n := r.running.Load(); n != 1 {
			t.Errorf("%d watches run", n)
		}

		r.Stop()
	})
}

func TestBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t, 1)
		close(r.linger)

		a, b := r.Subscribe("a"), r.Subscribe("b")
		a.Replace("one")
		b.Replace("two", "one")

		if _, ok := r.Watch("two"); ok || len(r.Subscribers("one")) != 2 {
			t.Error("a key beyond the bound is watched, or one within it is not")
		}

		r.Stop()
		b.Replace("three")

		if _, ok := r.Watch("three"); ok {
			t.Error("a key is watched after the end")
		}
	})
}
