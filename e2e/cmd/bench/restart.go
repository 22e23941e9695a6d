package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/external-secrets/eso/e2e/measure"
)

// restart measures what a crash of the operator costs when all is in sync.
func (b *bench) restart(ctx context.Context) error {
	if err := b.operate(ctx); err != nil {
		return err
	}

	l := b.load("restart", b.objects, b.stores, longInterval)
	b.result.Conditions = fmt.Sprintf("With %d ExternalSecrets in sync on %d store(s) of Vault the operator is killed (kill -9) and started again.", l.Objects, l.Stores)

	if err := b.synced(ctx, l); err != nil {
		return err
	}

	if err := b.quiet(ctx); err != nil {
		return err
	}

	b.say("killing the operator ...")

	before, err := b.look(ctx, true)
	if err != nil {
		return err
	}

	if err := b.product.KillOperator(); err != nil {
		return err
	}

	began := time.Now()

	if err := b.restartOperator(ctx); err != nil {
		return err
	}

	b.result.Duration("ready again after", time.Since(began))

	if err := b.quiet(ctx); err != nil {
		return err
	}

	b.result.Duration("quiet again after, at most", time.Since(began))

	spent, err := b.since(ctx, before)
	if err != nil {
		return err
	}

	b.figures(spent, l.Objects, "object")

	reads := 0

	for name, n := range spent.requests {
		if strings.HasPrefix(name, "GET externalsecrets") || strings.HasPrefix(name, "GET secrets") {
			reads += n
		}
	}

	// A certificate or two are read from their Secrets.
	b.result.AtMost("single Secrets and ExternalSecrets read", float64(reads), float64(max(10, l.Objects/100)), "")
	b.result.AtMost("writes of targets and statuses", float64(spent.requests["APPLY secrets"]+spent.requests["PATCH externalsecrets/status"]), 0, "")
	b.result.AtMost("reads of Vault", float64(spent.backend[measure.BackendRead]), 0, "")

	return nil
}
