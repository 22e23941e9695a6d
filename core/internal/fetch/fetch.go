// Package fetch reads everything that a plan needs: one batch per store, all
// stores at the same time. It must never decide anything: what is read stands
// in the plan, what becomes of it is decided by render.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/external-secrets/eso/core/internal/binding"
	"github.com/external-secrets/eso/core/internal/plan"
	"github.com/external-secrets/eso/core/internal/providerclient"
	"github.com/external-secrets/eso/core/internal/source"
)

// shownFailures bounds the failures that an error's text lists.
const shownFailures = 3

// Failure is why one entry could not be read.
type Failure struct {
	// Entry that failed.
	Entry plan.Entry
	// Store and Read that the entry asked for.
	Store plan.Store
	Read  plan.Read
	// Err is the reason.
	Err *providerclient.Error
}

// String names entry, store, key and reason.
func (f Failure) String() string {
	text := fmt.Sprintf("%s: %s: key %q", f.Entry.Field, f.Store, f.Read.Key)
	if f.Read.Property != "" {
		text += fmt.Sprintf(" property %q", f.Read.Property)
	}

	if f.Read.Version != "" {
		text += fmt.Sprintf(" version %q", f.Read.Version)
	}

	return text + ": " + f.Err.Error()
}

// Error says what could not be read: whole stores, or single entries.
type Error struct {
	// Stores that could not be read at all, with the reason.
	Stores []StoreFailure
	// Entries that could not be read although their store could.
	Entries []Failure
}

// StoreFailure is why a store could not be read.
type StoreFailure struct {
	// Batch that was to be read.
	Batch plan.Batch
	// Err is the reason.
	Err error
}

// Error lists the first failures.
func (e *Error) Error() string {
	texts := make([]string, 0, len(e.Stores)+len(e.Entries))

	for _, f := range e.Stores {
		text := f.Err.Error()
		if name := f.Batch.Store.String(); !strings.Contains(text, name) {
			text = fmt.Sprintf("%s (keys %s): %s", name, keys(f.Batch.Reads), text)
		}

		texts = append(texts, text)
	}

	for _, f := range e.Entries {
		texts = append(texts, f.String())
	}

	if more := len(texts) - shownFailures; more > 0 {
		texts = append(texts[:shownFailures], fmt.Sprintf("and %d more", more))
	}

	return strings.Join(texts, "; ")
}

// RetryAfter is when the backends want to be asked again; 0 means that none
// said.
func (e *Error) RetryAfter() time.Duration {
	var after time.Duration

	for _, f := range e.Stores {
		if typed, ok := errors.AsType[*providerclient.Error](f.Err); ok {
			after = max(after, typed.RetryAfter)
		}
	}

	for _, f := range e.Entries {
		after = max(after, f.Err.RetryAfter)
	}

	return after
}

// Permanent tells whether only a change of an object can end the failure, so
// that trying again before is of no use.
func (e *Error) Permanent() bool {
	if len(e.Entries) > 0 {
		return false
	}

	for _, f := range e.Stores {
		var (
			denial   *binding.DenialError
			unserved *source.UnservedError
		)

		if !errors.As(f.Err, &denial) && !errors.As(f.Err, &unserved) {
			return false
		}
	}

	return true
}

func keys(reads []plan.Read) string {
	names := make([]string, 0, shownFailures)

	for i, read := range reads {
		if i == shownFailures {
			names = append(names, fmt.Sprintf("and %d more", len(reads)-i))

			break
		}

		names = append(names, fmt.Sprintf("%q", read.Key))
	}

	return strings.Join(names, ", ")
}

// Fetch reads what the plan needs, on behalf of a namespace, and answers one
// result per entry of the plan. An error is an *Error.
func Fetch(ctx context.Context, openers source.Registry, p *plan.Plan, namespace string) ([]source.Result, error) {
	batches := make([][]source.Result, len(p.Batches))
	failures := make([]error, len(p.Batches))

	var wait sync.WaitGroup

	for i, batch := range p.Batches {
		wait.Go(func() {
			batches[i], failures[i] = read(ctx, openers, batch, namespace)
		})
	}

	wait.Wait()

	return assemble(p, batches, failures)
}

func read(ctx context.Context, openers source.Registry, batch plan.Batch, namespace string) ([]source.Result, error) {
	opener, err := openers.Opener(batch.Store, batch.Field)
	if err != nil {
		return nil, err
	}

	open, err := opener.Open(ctx, batch.Store, namespace)
	if err != nil {
		return nil, err
	}

	return open.Read(ctx, batch.Reads)
}

// assemble gives each entry its result.
func assemble(p *plan.Plan, batches [][]source.Result, failures []error) ([]source.Result, error) {
	failed := &Error{}

	for i, err := range failures {
		if err != nil {
			failed.Stores = append(failed.Stores, StoreFailure{Batch: p.Batches[i], Err: err})
		}
	}

	results := make([]source.Result, len(p.Entries))

	for i, entry := range p.Entries {
		if failures[entry.Batch] != nil {
			continue
		}

		results[i] = batches[entry.Batch][entry.Read]
		if results[i].Err != nil {
			batch := p.Batches[entry.Batch]
			failed.Entries = append(failed.Entries, Failure{Entry: entry, Store: batch.Store, Read: batch.Reads[entry.Read], Err: results[i].Err})
		}
	}

	if len(failed.Stores) > 0 || len(failed.Entries) > 0 {
		return nil, failed
	}

	return results, nil
}
