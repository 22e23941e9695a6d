package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// certificateLife and authorityLife make every certificate be renewed each
	// six seconds, and the authority itself each 40.
	certificateLife = 9 * time.Second
	authorityLife   = 60 * time.Second
	certificateLoad = 10 * time.Minute
	// certificateRefresh is the refreshInterval meanwhile.
	certificateRefresh = 10 * time.Second
)

// certificates measures whether renewals fail syncs.
func (b *bench) certificates(ctx context.Context) error {
	if err := b.operate(ctx, "--certificate-lifetime", certificateLife.String(), "--ca-lifetime", authorityLife.String()); err != nil {
		return err
	}

	l := b.load("certificates", b.objects/2, b.stores, certificateRefresh)
	b.result.Conditions = fmt.Sprintf(
		"%d ExternalSecrets on %d store(s) of Vault, with a refreshInterval of %s, for %s, while certificates live for %s and the authority for %s.",
		l.Objects, l.Stores, l.Refresh, certificateLoad, certificateLife, authorityLife)

	if err := b.synced(ctx, l); err != nil {
		return err
	}

	before, err := b.look(ctx, true)
	if err != nil {
		return err
	}

	refreshes, failures := b.tracker.Refreshes(), b.tracker.Failures()

	if err := b.pause(ctx, certificateLoad); err != nil {
		return err
	}

	refreshes, failures = b.tracker.Refreshes()-refreshes, b.tracker.Failures()-failures

	spent, err := b.since(ctx, before)
	if err != nil {
		return err
	}

	b.result.Figure("refreshes", float64(refreshes), "")
	b.result.Figure("failed syncs", float64(failures), "")
	b.figures(spent, max(refreshes, 1), "refresh")
	b.result.AtMost("failed syncs", float64(failures), 0, "")
	// Every object was due once per interval, jitter included.
	b.result.AtLeast("refreshes of an object", float64(refreshes)/float64(l.Objects), 0.9*float64(certificateLoad/certificateRefresh), "")

	return nil
}
