package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/external-secrets/eso/e2e/load"
	"github.com/external-secrets/eso/e2e/measure"
	"github.com/external-secrets/eso/e2e/tracker"
)

const (
	outage = 2 * time.Minute
	// wrongTokenInterval is such that every object is due once during the outage.
	wrongTokenInterval = time.Minute
)

// wrongToken measures what a Vault that refuses its clients is asked, and how
// long it takes until all is well again.
func (b *bench) wrongToken(ctx context.Context) error {
	if err := b.operate(ctx); err != nil {
		return err
	}

	l := b.load("wrong-token", b.objects, b.stores, wrongTokenInterval)
	b.result.Conditions = fmt.Sprintf(
		"%d ExternalSecrets on %d store(s) of Vault, in sync, with a refreshInterval of %s. "+
			"The token in the stores' Secret is replaced by a wrong one and revoked at Vault for %s, then the right one comes back.",
		l.Objects, l.Stores, l.Refresh, outage,
	)

	created, err := b.backend.Request(ctx, http.MethodPost, "auth/token/create", map[string]any{"policies": []string{"root"}})
	if err != nil {
		return err
	}

	auth, _ := created["auth"].(map[string]any)
	token, _ := auth["client_token"].(string)

	if err := b.synced(ctx, l); err != nil {
		return err
	}

	// From here on the stores use a token that can be taken from them.
	if err := l.SetToken(ctx, token); err != nil {
		return err
	}

	if err := b.pause(ctx, wrongTokenInterval+30*time.Second); err != nil {
		return err
	}

	before, err := b.look(ctx, true)
	if err != nil {
		return err
	}

	if err := l.SetToken(ctx, "wrong"); err != nil {
		return err
	}

	if _, err := b.backend.Request(ctx, http.MethodPost, "auth/token/revoke", map[string]any{"token": token}); err != nil {
		return err
	}

	b.say("the token is wrong for %s ...", outage)

	busiest, err := b.busiestSecond(ctx, outage)
	if err != nil {
		return err
	}

	spent, err := b.since(ctx, before)
	if err != nil {
		return err
	}

	b.result.Figure("failing at the end of the outage", float64(b.tracker.Count(tracker.Failing)), "objects")
	b.figures(spent, l.Objects, "object")

	calls := float64(spent.backend.Total()) / spent.wall.Seconds()
	budget := float64(l.Objects) / wrongTokenInterval.Seconds()

	b.result.Figure("requests of Vault", calls, "per second")
	b.result.Figure("requests of Vault in the busiest second", float64(busiest), "")
	b.result.AtMost("requests of Vault per second, no more than a healthy one gets", calls, budget, "")

	return b.recover(ctx, l)
}

// recover gives the right token back and waits until every object has been
// synced with it.
func (b *bench) recover(ctx context.Context, l *load.Load) error {
	b.say("the token is right again ...")

	restored := time.Now()

	ready := b.ready(l)
	all := b.tracker.Expect(fmt.Sprintf("%d ExternalSecrets to be Ready and synced since the token is right again", l.Objects), l.Objects, func(state tracker.State) bool {
		return tracker.Ready(state) && !state.Refreshed.Before(restored.Truncate(time.Second))
	})

	if err := l.SetToken(ctx, b.backend.RootToken()); err != nil {
		return err
	}

	at, err := ready.Wait(ctx, syncLimit)
	if err != nil {
		return err
	}

	b.result.Duration("all Ready after the token was right again", at.Sub(restored))

	if at, err = all.Wait(ctx, syncLimit); err != nil {
		return err
	}

	b.result.Duration("all synced after the token was right again", at.Sub(restored))

	return nil
}

// busiestSecond watches Vault's requests for a time and gives the highest
// number in one second.
func (b *bench) busiestSecond(ctx context.Context, d time.Duration) (int, error) {
	total := func() int { return measure.Counts(b.backend.Requests()).Total() }

	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()

	busiest, last := 0, total()

	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-ticker.C:
		}

		now := total()
		busiest = max(busiest, now-last)
		last = now
	}

	return busiest, nil
}
