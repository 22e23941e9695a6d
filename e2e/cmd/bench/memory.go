package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/external-secrets/eso/e2e/load"
	"github.com/external-secrets/eso/e2e/measure"
)

const (
	unrelatedSize = 100_000
	// memorySamples of the operator's memory are taken a second apart: what the
	// garbage collector has not returned yet comes and goes.
	memorySamples = 10
)

// memory measures what Secrets that no ExternalSecret has to do with cost the
// operator. All of them fit into etcd's default quota of 2 GiB.
func (b *bench) memory(ctx context.Context) error {
	if err := b.operate(ctx); err != nil {
		return err
	}

	l := b.load("memory", b.objects, b.stores, longInterval)
	b.result.Conditions = fmt.Sprintf(
		"With %d ExternalSecrets in sync, %d Secrets of %d KB each are created that no ExternalSecret has to do with. "+
			"Memory is the resident set's median over %d s without work, after a restart of the operator unless it says otherwise.",
		l.Objects, b.unrelated, unrelatedSize/1000, memorySamples,
	)

	if err := b.synced(ctx, l); err != nil {
		return err
	}

	before, err := b.residentAfterRestart(ctx)
	if err != nil {
		return err
	}

	b.say("creating %d Secrets of %d KB ...", b.unrelated, unrelatedSize/1000)

	if err := load.Unrelated(ctx, b.client, "unrelated", b.unrelated, unrelatedSize); err != nil {
		return err
	}

	running, err := b.resident(ctx)
	if err != nil {
		return err
	}

	after, err := b.residentAfterRestart(ctx)
	if err != nil {
		return err
	}

	processes, err := measure.ReadProcesses()
	if err != nil {
		return err
	}

	growth := max(running, after) - before

	b.result.Figure("operator without them", mebibytes(before), "MiB")
	b.result.Figure("operator with them, running on", mebibytes(running), "MiB")
	b.result.Figure("operator with them", mebibytes(after), "MiB")
	b.result.Figure("kube-apiserver with them, peak", mebibytes(processes[apiServerProcess].Peak), "MiB")
	b.result.Figure("etcd with them, peak", mebibytes(processes[etcdProcess].Peak), "MiB")
	b.result.AtMost("growth of the operator", mebibytes(growth), targetGrowth, "MiB")

	return nil
}

func (b *bench) residentAfterRestart(ctx context.Context) (int64, error) {
	if err := b.product.StopOperator(); err != nil {
		return 0, err
	}

	if err := b.restartOperator(ctx); err != nil {
		return 0, err
	}

	return b.resident(ctx)
}

// resident gives the operator's memory when it has nothing to do.
func (b *bench) resident(ctx context.Context) (int64, error) {
	if err := b.quiet(ctx); err != nil {
		return 0, err
	}

	var samples []int64

	for range memorySamples {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Second):
		}

		processes, err := measure.ReadProcesses()
		if err != nil {
			return 0, err
		}

		samples = append(samples, processes[operatorProcess].Resident)
	}

	slices.Sort(samples)

	return samples[len(samples)/2], nil
}
