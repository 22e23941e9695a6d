package main

import (
	"context"
	"fmt"
	"time"

	"github.com/external-secrets/eso/e2e/measure"
	"github.com/external-secrets/eso/e2e/tracker"
)

const (
	// saturatingInterval causes more due refreshes than any machine performs.
	saturatingInterval = 10 * time.Second
	newObjects         = 60
)

// firstAmongRefreshes measures how long new objects wait while more refreshes
// are due than can be performed.
func (b *bench) firstAmongRefreshes(ctx context.Context) error {
	if err := b.operate(ctx); err != nil {
		return err
	}

	l := b.load("first", 5*b.objects, b.stores, saturatingInterval)
	b.result.Conditions = fmt.Sprintf(
		"%d ExternalSecrets on %d store(s) of Vault, with a refreshInterval of %s, so that more refreshes are due than can be performed. "+
			"Every second, %d times, a new ExternalSecret is created; the latency ends when it is Ready.",
		l.Objects, l.Stores, l.Refresh, newObjects,
	)

	if err := b.synced(ctx, l); err != nil {
		return err
	}

	if err := l.Keys(ctx, b.backend, l.Objects, l.Objects+newObjects); err != nil {
		return err
	}

	// Until everything has been refreshed once the queue is not what it will be.
	if err := b.pause(ctx, 2*saturatingInterval); err != nil {
		return err
	}

	b.say("creating %d ExternalSecrets, one per second ...", newObjects)

	before, err := b.look(ctx, true)
	if err != nil {
		return err
	}

	seen := b.tracker.Refreshes()

	took, err := probes(ctx, time.Second, newObjects*time.Second, func(ctx context.Context, i int) (time.Duration, error) {
		name := l.Object(l.Objects + i)
		ready := b.tracker.Expect(fmt.Sprintf("the new ExternalSecret %s to be Ready", name), 1, func(state tracker.State) bool {
			return state.Name == name && tracker.Ready(state)
		})

		began := time.Now()

		if err := l.ExternalSecret(ctx, l.Objects+i); err != nil {
			return 0, err
		}

		at, err := ready.Wait(ctx, probeLimit)

		return at.Sub(began), err
	})
	if err != nil {
		return err
	}

	refreshes := b.tracker.Refreshes() - seen

	spent, err := b.since(ctx, before)
	if err != nil {
		return err
	}

	b.latencies("creation to Ready", took)
	b.result.Figure("refreshes meanwhile", float64(refreshes)/spent.wall.Seconds(), "per second")
	b.result.Figure("refreshes due meanwhile", float64(l.Objects)/saturatingInterval.Seconds(), "per second")
	b.figures(spent, max(refreshes, 1), "refresh")
	b.result.AtMost("p99 from creation to Ready", measure.Quantile(took, 0.99).Seconds(), targetFirst.Seconds(), "s")

	return nil
}
