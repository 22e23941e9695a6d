package main

import (
	"context"
	"fmt"
	"time"

	"github.com/external-secrets/eso/e2e/measure"
)

// refresh measures periodic refreshes over two intervals.
func (b *bench) refresh(ctx context.Context) error {
	if err := b.operate(ctx); err != nil {
		return err
	}

	l := b.load("refresh", b.objects, b.stores, b.interval)
	b.result.Conditions = fmt.Sprintf("%d ExternalSecrets on %d store(s) of Vault, in sync, with a refreshInterval of %s, over two intervals in which nothing changes.", l.Objects, l.Stores, l.Refresh)

	if err := b.synced(ctx, l); err != nil {
		return err
	}

	// The first refreshes come as closely together as the first syncs did.
	if err := b.pause(ctx, b.interval); err != nil {
		return err
	}

	b.say("refreshing ...")

	before, err := b.look(ctx, true)
	if err != nil {
		return err
	}

	seen := b.tracker.Refreshes()

	if err := b.pause(ctx, 2*b.interval); err != nil {
		return err
	}

	refreshes := b.tracker.Refreshes() - seen

	spent, err := b.since(ctx, before)
	if err != nil {
		return err
	}

	if refreshes == 0 {
		return fmt.Errorf("cannot measure refreshes: there was none in %s", 2*b.interval)
	}

	perRefresh := float64(spent.requests.Total()) / float64(refreshes)
	reads := float64(spent.backend[measure.BackendRead]) / float64(refreshes)
	perObject := float64(refreshes) / float64(l.Objects)

	b.result.Figure("refreshes", float64(refreshes), "")
	b.result.Figure("refreshes per second", float64(refreshes)/spent.wall.Seconds(), "")
	b.result.Figure("refreshes of an object", perObject, "in two intervals")
	b.result.Figure("requests of the API server", perRefresh, "per refresh")
	b.result.Figure("reads of Vault", reads, "per refresh")
	b.figures(spent, refreshes, "refresh")

	b.result.AtMost("requests of the API server per refresh", perRefresh, targetRefreshRequests, "")
	b.result.AtMost("reads of Vault per refresh", reads, targetRefreshRequests, "")
	// Jitter makes the intervals up to a tenth shorter.
	b.result.AtLeast("refreshes of an object in two intervals", perObject, 1.9, "")

	return nil
}

// pause waits for a fixed time.
func (b *bench) pause(ctx context.Context, d time.Duration) error {
	b.say("waiting for %s ...", d)

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
