package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/external-secrets/eso/e2e/load"
	"github.com/external-secrets/eso/e2e/tracker"
)

// probeLimit bounds the wait for one answer.
const probeLimit = 2 * time.Minute

// probes calls probe at a steady rate for a time, whether or not earlier ones
// have been answered, so that a product that hangs is not asked less. It gives
// how long each took.
func probes(ctx context.Context, pause, d time.Duration, probe func(ctx context.Context, i int) (time.Duration, error)) ([]time.Duration, error) {
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		took []time.Duration
		errs []error
	)

	ticker := time.NewTicker(pause)
	defer ticker.Stop()

	for i := range int(d / pause) {
		select {
		case <-ctx.Done():
			errs = append(errs, ctx.Err())
		case <-ticker.C:
		}

		if ctx.Err() != nil {
			break
		}

		wait.Go(func() {
			latency, err := probe(ctx, i)

			mu.Lock()
			defer mu.Unlock()

			took = append(took, latency)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}

	wait.Wait()

	return took, errors.Join(errs...)
}

// forceSync asks for a sync of an ExternalSecret and gives how long it took
// until its status showed it.
func (b *bench) forceSync(ctx context.Context, l *load.Load, name types.NamespacedName, mark string) (time.Duration, error) {
	was := b.tracker.Get(name).SyncedVersion
	synced := b.tracker.Expect(fmt.Sprintf("ExternalSecret %s to be synced", name), 1, func(state tracker.State) bool {
		return state.Name == name && tracker.Ready(state) && state.SyncedVersion != was
	})

	began := time.Now()

	if err := l.ForceSync(ctx, name, mark); err != nil {
		return 0, err
	}

	at, err := synced.Wait(ctx, probeLimit)

	return at.Sub(began), err
}
