package main

import (
	"context"
	"fmt"
	"time"

	"github.com/external-secrets/eso/e2e/load"
	"github.com/external-secrets/eso/e2e/measure"
)

const (
	slowStores  = 100
	slowLatency = 10 * time.Second
	slowRounds  = 2
	slowPhase   = 60 * time.Second
	// slowSettle lets a change of the slow store's speed take effect: its
	// objects are synced again because its config has changed.
	slowSettle = 25 * time.Second
	probePause = 100 * time.Millisecond
)

// slowStore measures how fast objects of healthy stores are synced with and
// without a slow store beside them.
func (b *bench) slowStore(ctx context.Context) error {
	if err := b.operate(ctx); err != nil {
		return err
	}

	l := b.load("slow", b.objects, slowStores, b.interval)
	b.result.Conditions = fmt.Sprintf(
		"%d ExternalSecrets on %d stores of the fake provider, in sync, with a refreshInterval of %s. "+
			"Every %s an object of another store is asked to sync at once (annotation force-sync); the latency ends when its status shows it. "+
			"In every second phase of %s, %d in all, one store answers in %s.",
		l.Objects, l.Stores, l.Refresh, probePause, slowPhase, 2*slowRounds, slowLatency,
	)

	if err := b.synced(ctx, l); err != nil {
		return err
	}

	var without, with []time.Duration

	for round := range slowRounds {
		for _, phase := range []struct {
			latency time.Duration
			took    *[]time.Duration
		}{{0, &without}, {slowLatency, &with}} {
			if err := l.SetLatency(ctx, 0, phase.latency); err != nil {
				return err
			}

			if err := b.pause(ctx, slowSettle); err != nil {
				return err
			}

			took, err := b.forceSyncs(ctx, l, fmt.Sprintf("%d-%s", round, phase.latency))
			if err != nil {
				return err
			}

			*phase.took = append(*phase.took, took...)
		}
	}

	b.latencies("without the slow store", without)
	b.latencies("with the slow store", with)

	slower := percent(float64(measure.Quantile(with, 0.99)), float64(measure.Quantile(without, 0.99))) - 100
	b.result.AtMost("growth of the others' p99 by the slow store", slower, targetSlower, "%")

	return nil
}

// forceSyncs probes objects of all stores but the first, the slow one.
func (b *bench) forceSyncs(ctx context.Context, l *load.Load, mark string) ([]time.Duration, error) {
	b.say("probing for %s ...", slowPhase)

	return probes(ctx, probePause, slowPhase, func(ctx context.Context, i int) (time.Duration, error) {
		// Neighbours stand in different stores; a probe of the first store is
		// moved to the next.
		object := i % l.Objects
		if object%l.Stores == 0 {
			object = (object + 1) % l.Objects
		}

		return b.forceSync(ctx, l, l.Object(object), fmt.Sprintf("%s-%d", mark, i))
	})
}
