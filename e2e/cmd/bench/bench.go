package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/client-go/kubernetes"

	"github.com/external-secrets/eso/e2e/load"
	"github.com/external-secrets/eso/e2e/measure"
	"github.com/external-secrets/eso/e2e/report"
	"github.com/external-secrets/eso/e2e/tracker"
	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/vaultserver"
)

const (
	operatorProcess          = "external-secrets"
	apiServerProcess         = "kube-apiserver"
	etcdProcess              = "etcd"
	controllerManagerProcess = "kube-controller-manager"

	mebibyte = 1 << 20

	// syncLimit bounds the wait for all objects of a scenario: ten a second are
	// far too few.
	syncLimit = 20 * time.Minute
	// quietLimit bounds the wait for the processes to be idle.
	quietLimit = 3 * time.Minute
)

// bench is one scenario's installation.
type bench struct {
	*options

	stores       int
	providerName string
	result       *report.Scenario

	backend   *vaultserver.Server
	product   *installation.Installation
	provider  *installation.Provider
	client    client.WithWatch
	clientset kubernetes.Interface
	ledger    *measure.Ledger
	tracker   *tracker.Tracker
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

// start starts everything but the operator and the provider.
func (b *bench) start(ctx context.Context) error {
	var err error

	if b.providerName == providerVault {
		if b.backend, err = vaultserver.Start(ctx, vaultserver.Options{Log: b.log, Progress: b.progress, CountRequests: true}); err != nil {
			return err
		}
	}

	if b.product, err = installation.Start(ctx, installation.Options{Log: b.log, Progress: b.progress, Providers: []string{providerFake, providerVault}, Binaries: b.binaries}); err != nil {
		return err
	}

	config := b.product.ControlPlane.Config()
	b.ledger = measure.NewLedger()
	b.ledger.Wrap(config)

	if b.client, err = client.NewWithWatch(config, client.Options{Scheme: b.product.Client.Scheme()}); err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}

	if b.clientset, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}

	b.say("waiting for the garbage collector ...")

	return load.AwaitCollector(ctx, b.client)
}

// operate starts the operator with its default flags, but for those given, and
// the provider.
func (b *bench) operate(ctx context.Context, flags ...string) error {
	b.say("starting the operator and the %s provider ...", b.providerName)

	if err := b.product.StartOperator(ctx, flags...); err != nil {
		return err
	}

	var err error
	if b.provider, err = b.product.StartProvider(ctx, b.providerName); err != nil {
		return err
	}

	b.tracker, err = tracker.Start(ctx, b.client)

	return err
}

func (b *bench) stop() error {
	var errs []error

	if b.tracker != nil {
		b.tracker.Stop()
	}

	if b.product != nil {
		errs = append(errs, b.product.Stop())
	}

	if b.backend != nil {
		errs = append(errs, b.backend.Stop())
	}

	return errors.Join(errs...)
}

// load describes the scenario's objects.
func (b *bench) load(name string, objects, stores int, refresh time.Duration) *load.Load {
	return &load.Load{Client: b.client, Name: name, Objects: objects, Stores: stores, Refresh: refresh}
}

// prepare creates namespaces, keys and stores, and waits until the stores are
// Ready.
func (b *bench) prepare(ctx context.Context, l *load.Load) error {
	b.say("writing %d keys, making %d stores ...", l.Objects, l.Stores)

	if err := l.Namespaces(ctx); err != nil {
		return err
	}

	if b.backend != nil {
		if err := l.Vault(ctx, b.backend); err != nil {
			return err
		}
	} else if err := l.Fake(ctx); err != nil {
		return err
	}

	return l.StoresReady(ctx, time.Minute)
}

// synced brings a load in sync: what a scenario begins with that is not about
// first syncs.
func (b *bench) synced(ctx context.Context, l *load.Load) error {
	if err := b.prepare(ctx, l); err != nil {
		return err
	}

	b.say("creating %d ExternalSecrets and syncing them ...", l.Objects)

	ready := b.ready(l)

	if err := l.ExternalSecrets(ctx); err != nil {
		return err
	}

	_, err := ready.Wait(ctx, syncLimit)

	return err
}

// ready expects all objects of a load to be Ready.
func (b *bench) ready(l *load.Load) *tracker.Expectation {
	return b.tracker.Expect(fmt.Sprintf("%d ExternalSecrets to be Ready", l.Objects), l.Objects, tracker.Ready)
}

// look is what the counters showed at one moment.
type look struct {
	at        time.Time
	processes measure.Processes
	requests  measure.Counts
	backend   measure.Counts
}

// look reads all counters. The API server's, which cost it some time to give,
// come first at the beginning of what is measured and last at its end.
func (b *bench) look(ctx context.Context, begin bool) (look, error) {
	var (
		seen look
		err  error
	)

	requests := func() error {
		// The client's own requests are counted before the server's: those that
		// are on their way in between would be taken off twice.
		own := b.ledger.Counts()
		seen.requests, err = measure.ServedRequests(ctx, b.clientset.Discovery().RESTClient())
		seen.requests = seen.requests.Minus(own)

		return err
	}

	if begin {
		if err := requests(); err != nil {
			return look{}, err
		}
	}

	seen.at = time.Now()

	if b.backend != nil {
		seen.backend = maps.Clone(b.backend.Requests())
	}

	if seen.processes, err = measure.ReadProcesses(); err != nil {
		return look{}, err
	}

	if !begin {
		if err := requests(); err != nil {
			return look{}, err
		}
	}

	return seen, nil
}

// cost is what a stretch of time cost.
type cost struct {
	wall      time.Duration
	processes measure.Processes
	requests  measure.Counts
	// backend requests by kind.
	backend measure.Counts
}

// since gives the cost from an earlier look until now.
func (b *bench) since(ctx context.Context, before look) (cost, error) {
	after, err := b.look(ctx, false)
	if err != nil {
		return cost{}, err
	}

	return cost{
		wall:      after.at.Sub(before.at),
		processes: after.processes.Since(before.processes),
		requests:  after.requests.Minus(before.requests),
		backend:   measure.BackendKinds(after.backend.Minus(before.backend)),
	}, nil
}

// quiet waits until the product is idle and the control plane all but idle, for
// two looks in a row.
func (b *bench) quiet(ctx context.Context) error {
	const (
		pause = time.Second
		// idle is the share of a core that counts as nothing: the API server is
		// never quite idle.
		idle       = 0.03
		idleServer = 0.25
		wanted     = 2
	)

	before, err := measure.ReadProcesses()
	if err != nil {
		return err
	}

	var busy string

	deadline := time.Now().Add(quietLimit)

	for calm := 0; calm < wanted; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}

		if time.Now().After(deadline) {
			return fmt.Errorf("cannot wait for the processes to be idle: after %s %s is not", quietLimit, busy)
		}

		now, err := measure.ReadProcesses()
		if err != nil {
			return err
		}

		busy = ""

		for name, used := range now.Since(before) {
			allowed := idle
			if name == apiServerProcess || name == etcdProcess || name == controllerManagerProcess {
				allowed = idleServer
			}

			if used.CPU > time.Duration(allowed*float64(pause)) {
				busy = name
			}
		}

		calm++
		if busy != "" {
			calm = 0
		}

		before = now
	}

	return nil
}

// restartOperator starts the operator again, and takes the request that this makes off
// the operator's.
func (b *bench) restartOperator(ctx context.Context) error {
	if err := b.product.RestartOperator(ctx); err != nil {
		return err
	}

	b.ledger.Add("POST serviceaccounts/token", 1)

	return nil
}
