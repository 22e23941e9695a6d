package fetch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/external-secrets/eso/core/store"
)

// flight is one read in flight.
type flight struct {
	began  time.Time
	done   chan struct{}
	result store.Result
	err    error
}

// flightKey identifies a read: two that are equal, by the same identity, are
// one.
type flightKey struct {
	identity string
	read     store.Read
	known    string
}

// flights are the reads in flight.
type flights struct {
	mu    sync.Mutex
	byKey map[flightKey]*flight
}

func newFlights() *flights { return &flights{byKey: map[flightKey]*flight{}} }

// errLeft is the result of a shared read whose caller was cancelled.
var errLeft = errors.New("the read that was shared was cancelled")

// read performs reads by calling ask, except for those that another caller with
// the same identity has in flight: it waits for their results. Results of reads
// that were started before since may be outdated and are not used.
func (f *flights) read(
	ctx context.Context, identity string, reads []store.Read, known []string, since time.Time,
	ask func(context.Context, []store.Read, []string) ([]store.Result, error),
) ([]store.Result, error) {
	results := make([]store.Result, len(reads))
	joined := map[int]*flight{}

	var mine flightPlan

	f.mu.Lock()

	for i, read := range reads {
		key := flightKey{identity: identity, read: read, known: known[i]}

		if under, ok := f.byKey[key]; ok && !under.began.Before(since) {
			joined[i] = under

			continue
		}

		own := &flight{began: time.Now(), done: make(chan struct{}), err: errLeft}
		f.byKey[key] = own
		mine.add(i, key, own)
	}

	f.mu.Unlock()

	if err := f.lead(ctx, &mine, results, ask); err != nil {
		return nil, err
	}

	// Reads whose callers were cancelled are repeated once, without sharing.
	var again flightPlan

	for i, under := range joined {
		select {
		case <-under.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}

		switch {
		case errors.Is(under.err, errLeft), errors.Is(under.err, context.Canceled):
			again.add(i, flightKey{identity: identity, read: reads[i], known: known[i]}, nil)
		case under.err != nil:
			return nil, under.err
		default:
			results[i] = under.result
		}
	}

	return results, again.ask(ctx, results, ask)
}

// flightPlan is the part of a batch that one caller reads itself.
type flightPlan struct {
	at    []int
	keys  []flightKey
	own   []*flight
	reads []store.Read
	known []string
}

func (p *flightPlan) add(at int, key flightKey, own *flight) {
	p.at, p.keys, p.own = append(p.at, at), append(p.keys, key), append(p.own, own)
	p.reads, p.known = append(p.reads, key.read), append(p.known, key.known)
}

// ask calls ask and puts what it returns into results.
func (p *flightPlan) ask(ctx context.Context, results []store.Result, ask func(context.Context, []store.Read, []string) ([]store.Result, error)) error {
	if len(p.reads) == 0 {
		return nil
	}

	answers, err := ask(ctx, p.reads, p.known)
	if err != nil {
		return err
	}

	for i, at := range p.at {
		results[at] = answers[i]
	}

	return nil
}

// lead performs reads and passes the results to the callers that wait for them.
func (f *flights) lead(ctx context.Context, p *flightPlan, results []store.Result, ask func(context.Context, []store.Read, []string) ([]store.Result, error)) (err error) {
	answered := false

	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()

		for i, own := range p.own {
			if answered {
				own.result, own.err = results[p.at[i]], err
			}

			close(own.done)

			if f.byKey[p.keys[i]] == own { // and not one that was started since
				delete(f.byKey, p.keys[i])
			}
		}
	}()

	err = p.ask(ctx, results, ask)
	answered = true

	return err
}
