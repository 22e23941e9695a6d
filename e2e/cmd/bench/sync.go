package main

import (
	"context"
	"fmt"
	"time"

	"github.com/external-secrets/eso/e2e/load"
	"github.com/external-secrets/eso/e2e/measure"
)

const (
	// longInterval keeps refreshes out of what is not about them.
	longInterval = time.Hour
	// warmObjects are written before the limit is measured: the first writes of
	// a kind are the API server's slowest.
	warmObjects = 100
)

// limit is what the control plane allows.
type limit struct {
	// rate in objects per second; 0 where it has not been measured.
	rate float64
	// cpu of all processes per object.
	cpu time.Duration
}

// mean of two limits. A machine that is not all one's own is faster at one time
// than at another: what lies between two looks is compared with both.
func (l limit) mean(other limit) limit {
	return limit{rate: (l.rate + other.rate) / 2, cpu: (l.cpu + other.cpu) / 2}
}

// limit measures what the control plane allows, while the operator does not
// run. The name distinguishes measurements of a scenario.
func (b *bench) limit(ctx context.Context, name string) (limit, error) {
	b.say("measuring what the control plane allows ...")

	warm := b.load("warm-"+name, min(warmObjects, b.objects), 1, longInterval)
	if _, err := warm.Limit(ctx, b.clientset, func() error { return nil }); err != nil {
		return limit{}, fmt.Errorf("cannot measure the limit: %w", err)
	}

	if err := warm.Remove(ctx); err != nil {
		return limit{}, err
	}

	if err := b.quiet(ctx); err != nil {
		return limit{}, err
	}

	var before measure.Processes

	l := b.load("limit-"+name, b.objects, b.stores, longInterval)

	took, err := l.Limit(ctx, b.clientset, func() (err error) {
		before, err = measure.ReadProcesses()

		return err
	})
	if err != nil {
		return limit{}, fmt.Errorf("cannot measure the limit: %w", err)
	}

	// Deferred work of the control plane is counted, as after a sync.
	if err := b.quiet(ctx); err != nil {
		return limit{}, err
	}

	after, err := measure.ReadProcesses()
	if err != nil {
		return limit{}, err
	}

	used := after.Since(before)
	b.processes("Processes while the limit is measured "+name, used, took, l.Objects, "object")

	if err := l.Remove(ctx); err != nil {
		return limit{}, err
	}

	allowed := limit{rate: float64(l.Objects) / took.Seconds(), cpu: used.CPU() / time.Duration(l.Objects)}

	return allowed, b.quiet(ctx)
}

// sync measures the first syncs of objects that the operator finds at its
// start.
func (b *bench) sync(ctx context.Context) error {
	allowed, err := b.limit(ctx, "before")
	if err != nil {
		return err
	}

	l := b.load("sync", b.objects, b.stores, longInterval)
	b.result.Conditions = fmt.Sprintf(
		"%d ExternalSecrets of two properties of a key each, on %d store(s) of Vault, exist when the operator starts. "+
			"The limit is what a client that only writes, with 32 requests under way, reaches on the same control plane: the mean of before and after.",
		l.Objects, l.Stores,
	)

	return b.firstSyncs(ctx, l, allowed)
}

// large measures the first syncs of many objects.
func (b *bench) large(ctx context.Context) error {
	l := b.load("large", 5*b.objects, 100, longInterval)
	b.result.Conditions = fmt.Sprintf("%d ExternalSecrets of two properties of a key each, on %d stores of Vault, exist when the operator starts.", l.Objects, l.Stores)

	return b.firstSyncs(ctx, l, limit{})
}

// firstSyncs creates a load without the operator and measures how it is synced.
// A limit that has not been measured is not compared with.
func (b *bench) firstSyncs(ctx context.Context, l *load.Load, allowed limit) error {
	if err := b.operate(ctx); err != nil {
		return err
	}

	if err := b.prepare(ctx, l); err != nil {
		return err
	}

	if err := b.product.StopOperator(); err != nil {
		return err
	}

	b.say("creating %d ExternalSecrets ...", l.Objects)

	if err := l.ExternalSecrets(ctx); err != nil {
		return err
	}

	if err := b.quiet(ctx); err != nil {
		return err
	}

	b.say("syncing ...")

	ready := b.ready(l)

	before, err := b.look(ctx, true)
	if err != nil {
		return err
	}

	began := time.Now()

	if err := b.restartOperator(ctx); err != nil {
		return err
	}

	started := time.Now()

	ended, err := ready.Wait(ctx, syncLimit)
	if err != nil {
		return err
	}

	// Events follow the objects.
	if err := b.quiet(ctx); err != nil {
		return err
	}

	spent, err := b.since(ctx, before)
	if err != nil {
		return err
	}

	spent.wall = ended.Sub(began)
	rate := float64(l.Objects) / ended.Sub(started).Seconds()

	b.result.Duration("all Ready after the operator was ready", ended.Sub(started))
	b.result.Duration("all Ready after the operator's process began", ended.Sub(began))
	b.result.Figure("rate after the operator was ready", rate, "objects/s")

	b.judgeSyncs(spent, l)

	if allowed.rate > 0 {
		if allowed, err = b.limitAfter(ctx, allowed); err != nil {
			return err
		}

		b.share(rate, spent, l, allowed)
		b.result.AtLeast("share of the limit", percent(rate, allowed.rate), targetShare, "%")
		b.result.AtMost("peak memory of the operator", mebibytes(spent.processes[operatorProcess].Peak), targetPeak, "MiB")
	} else {
		b.result.AtMost("peak memory of the operator", mebibytes(spent.processes[operatorProcess].Peak), targetLargePeak, "MiB")
	}

	return l.SecretsHold(ctx)
}

// limitAfter stops the operator, measures the limit again and gives the mean.
func (b *bench) limitAfter(ctx context.Context, before limit) (limit, error) {
	if err := b.product.StopOperator(); err != nil {
		return limit{}, err
	}

	after, err := b.limit(ctx, "after")
	if err != nil {
		return limit{}, err
	}

	b.result.Figure("limit before", before.rate, "objects/s")
	b.result.Figure("limit after", after.rate, "objects/s")

	return before.mean(after), nil
}

// share compares with the limit. Where the CPU is what limits, the share of CPU
// time shows the same as that of the rate, and other work on the machine
// disturbs it less.
func (b *bench) share(rate float64, spent cost, l *load.Load, allowed limit) {
	cpu := spent.processes.CPU() / time.Duration(l.Objects)

	b.result.Figure("share of the limit", percent(rate, allowed.rate), "%")
	b.result.Figure("CPU time of all processes", float64(cpu)/float64(time.Millisecond), "ms per object")
	b.result.Figure("CPU time of all processes at the limit", float64(allowed.cpu)/float64(time.Millisecond), "ms per object")
	b.result.Figure("share of the limit by CPU time", percent(float64(allowed.cpu), float64(cpu)), "%")
}

// judgeSyncs reports what first syncs cost and judges their requests.
func (b *bench) judgeSyncs(spent cost, l *load.Load) {
	b.figures(spent, l.Objects, "object")

	perObject := float64(spent.requests.Total()) / float64(l.Objects)

	b.result.Figure("requests of the API server", perObject, "per object")
	b.result.Figure("reads of Vault", float64(spent.backend[measure.BackendRead]), "")
	b.result.Figure("peak memory of the operator", mebibytes(spent.processes[operatorProcess].Peak), "MiB")
	b.result.AtMost("requests of the API server per object", perObject, targetRequests, "")
	b.result.AtMost("reads of Vault for as many keys", float64(spent.backend[measure.BackendRead]), float64(l.Objects), "")
}

// create measures objects that are created while the operator runs.
func (b *bench) create(ctx context.Context) error {
	allowed, err := b.limit(ctx, "before")
	if err != nil {
		return err
	}

	if err := b.operate(ctx); err != nil {
		return err
	}

	l := b.load("create", b.objects, b.stores, longInterval)
	b.result.Conditions = fmt.Sprintf(
		"%d ExternalSecrets of two properties of a key each, on %d store(s) of Vault, are created with 32 requests under way while the operator runs. "+
			"The time counts from the first creation. The limit is without the creation of ExternalSecrets.", l.Objects, l.Stores,
	)

	if err := b.prepare(ctx, l); err != nil {
		return err
	}

	if err := b.quiet(ctx); err != nil {
		return err
	}

	b.say("creating and syncing ...")

	ready := b.ready(l)

	before, err := b.look(ctx, true)
	if err != nil {
		return err
	}

	if err := l.ExternalSecrets(ctx); err != nil {
		return err
	}

	created := time.Now()

	ended, err := ready.Wait(ctx, syncLimit)
	if err != nil {
		return err
	}

	if err := b.quiet(ctx); err != nil {
		return err
	}

	spent, err := b.since(ctx, before)
	if err != nil {
		return err
	}

	spent.wall = ended.Sub(before.at)
	rate := float64(l.Objects) / spent.wall.Seconds()

	if allowed, err = b.limitAfter(ctx, allowed); err != nil {
		return err
	}

	b.result.Duration("all created after", created.Sub(before.at))
	b.result.Duration("all Ready after", spent.wall)
	b.result.Figure("rate", rate, "objects/s")
	b.share(rate, spent, l, allowed)
	b.judgeSyncs(spent, l)
	b.result.AtMost("peak memory of the operator", mebibytes(spent.processes[operatorProcess].Peak), targetPeak, "MiB")

	return l.SecretsHold(ctx)
}
