package fetch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/external-secrets/eso/core/store"
)

func TestReadsInFlightAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			f     = newFlights()
			asked atomic.Int32
			free  = make(chan struct{})
			wait  sync.WaitGroup
		)

		ask := func(_ context.Context, reads []store.Read, _ []string) ([]store.Result, error) { //nolint:unparam // a store may fail; this one does not
			asked.Add(int32(len(reads))) //nolint:gosec // a handful

			<-free

			results := make([]store.Result, len(reads))
			for i, read := range reads {
				results[i].Value = []byte(read.Key)
			}

			return results, nil
		}

		for _, keys := range [][]string{{"a", "b"}, {"b", "c"}, {"a"}, {"c", "b", "a"}} {
			reads := make([]store.Read, len(keys))
			for i, key := range keys {
				reads[i].Key = key
			}

			wait.Go(func() {
				results, err := f.read(t.Context(), "one", reads, make([]string, len(reads)), time.Time{}, ask)
				if err != nil {
					t.Error(err)

					return
				}

				for i, result := range results {
					if string(result.Value) != keys[i] {
						t.Errorf("read of %q was answered %q", keys[i], result.Value)
					}
				}
			})
			synctest.Wait()
		}

		// The same read by another identity is another read.
		wait.Go(func() { _, _ = f.read(t.Context(), "other", []store.Read{{Key: "a"}}, []string{""}, time.Time{}, ask) })
		synctest.Wait()

		if n := asked.Load(); n != 4 {
			t.Errorf("%d reads were asked for; want a, b and c once, and a by the other identity", n)
		}

		close(free)
		wait.Wait()

		if len(f.byKey) > 0 {
			t.Errorf("%d flights are left", len(f.byKey))
		}
	})
}

// A shared read must not fail because the caller that began it was canceled.
func TestReadWhoseLeaderLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			f      = newFlights()
			wait   sync.WaitGroup
			leader = true
		)

		ctx, leave := context.WithCancel(t.Context())
		ask := func(ctx context.Context, reads []store.Read, _ []string) ([]store.Result, error) {
			if leader {
				leader = false

				<-ctx.Done()

				return nil, ctx.Err()
			}

			return make([]store.Result, len(reads)), nil
		}
		read := []store.Read{{Key: "a"}}

		wait.Go(func() {
			if _, err := f.read(ctx, "one", read, []string{""}, time.Time{}, ask); !errors.Is(err, context.Canceled) {
				t.Errorf("the leader got %v", err)
			}
		})
		synctest.Wait()
		wait.Go(func() {
			if _, err := f.read(t.Context(), "one", read, []string{""}, time.Time{}, ask); err != nil {
				t.Errorf("the other got %v", err)
			}
		})
		synctest.Wait()
		leave()
		wait.Wait()
	})
}

// A read after a reported change must not share a read that began before it.
func TestReadsBegunTooEarlyAreNotShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			f     = newFlights()
			value = "old"
			wait  sync.WaitGroup
			asked atomic.Int32
		)

		// The backend answers what it holds when it is asked, a second later.
		ask := func(context.Context, []store.Read, []string) ([]store.Result, error) { //nolint:unparam // a store may fail; this one does not
			asked.Add(1)

			result := []store.Result{{Value: []byte(value)}}

			time.Sleep(time.Second)

			return result, nil
		}
		read := func(since time.Time, want string) {
			wait.Go(func() {
				results, err := f.read(t.Context(), "one", []store.Read{{Key: "a"}}, []string{""}, since, ask)
				if err != nil || string(results[0].Value) != want {
					t.Errorf("got %q, error %v; want %q", results[0].Value, err, want)
				}
			})
			synctest.Wait()
		}

		read(time.Time{}, "old")
		read(time.Time{}, "old")
		time.Sleep(100 * time.Millisecond)

		value = "new"
		told := time.Now()

		read(told, "new")
		read(told, "new")
		read(time.Time{}, "new")

		// The first one ends; the second one is still to be shared.
		time.Sleep(950 * time.Millisecond)
		read(told, "new")
		wait.Wait()

		if n := asked.Load(); n != 2 {
			t.Errorf("the store was asked %d times; want once before the change and once after", n)
		}

		if len(f.byKey) > 0 {
			t.Errorf("%d flights are left", len(f.byKey))
		}
	})
}
