// Package fetch reads everything that a plan needs: one batch per store, all
// stores at the same time. It must never decide anything: what is read stands
// in the plan, what becomes of it is decided by render.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/internal/store/source"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
)

// shownFailures bounds the failures that an error's text lists.
const shownFailures = 3

// Failure is why one entry could not be read.
type Failure struct {
	// Entry that failed.
	Entry plan.Entry
	// Store that the entry asked.
	Store plan.Store
	// Err is the reason.
	Err *providerclient.Error
	// Unproven says that the deletion policy would have taken the secret for
	// gone, had the store been well.
	Unproven bool

	// asked says what was asked for.
	asked string
}

// String names entry, store, key and reason.
func (f Failure) String() string {
	text := fmt.Sprintf("%s: %s: %s: %s", f.Entry.Field, f.Store, f.asked, f.Err.Error())

	if f.Unproven {
		text += "; the store is not Ready, so that this does not prove that the secret is gone"
	}

	return text
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
			text = fmt.Sprintf("%s (%s): %s", name, asked(f.Batch), text)
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
			denial   *resolver.DenialError
			unserved *source.UnservedError
		)

		if !errors.As(f.Err, &denial) && !errors.As(f.Err, &unserved) {
			return false
		}
	}

	return true
}

// asked says what a batch asks for.
func asked(batch plan.Batch) string {
	texts := make([]string, 0, len(batch.Reads)+len(batch.Finds))

	for _, read := range batch.Reads {
		// Several properties of one key are one.
		if text := fmt.Sprintf("key %q", read.Key); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}

	for _, find := range batch.Finds {
		texts = append(texts, find.String())
	}

	if more := len(texts) - shownFailures; more > 0 {
		texts = append(texts[:shownFailures], fmt.Sprintf("and %d more", more))
	}

	return strings.Join(texts, ", ")
}

// askedOf says what an entry of a plan asks for.
func askedOf(p *plan.Plan, entry plan.Entry) string {
	batch := p.Batches[entry.Batch]
	if entry.Find {
		return batch.Finds[entry.Read].String()
	}

	read := batch.Reads[entry.Read]
	text := fmt.Sprintf("key %q", read.Key)

	if read.Property != "" {
		text += fmt.Sprintf(" property %q", read.Property)
	}

	if read.Version != "" {
		text += fmt.Sprintf(" version %q", read.Version)
	}

	return text
}

// Answers are what the stores of a plan answered: per batch its reads, then its
// finds.
type Answers [][]source.Result

// Opened are the stores of a plan, ready to be asked.
type Opened struct {
	plan     *plan.Plan
	sources  []source.Source
	failures []error
}

// Open opens the stores of a plan on behalf of a namespace. A store that cannot
// be opened is told by Fetch, together with what fails there.
func Open(ctx context.Context, openers source.Registry, p *plan.Plan, namespace string) *Opened {
	o := &Opened{plan: p, sources: make([]source.Source, len(p.Batches)), failures: make([]error, len(p.Batches))}

	for i, batch := range p.Batches {
		opener, err := openers.Opener(batch.Store, batch.Field)
		if err == nil {
			o.sources[i], err = opener.Open(ctx, batch.Store, namespace)
		}

		o.failures[i] = err
	}

	return o
}

// Lanes that a fetch takes up: the providers and stores that it keeps busy.
func (o *Opened) Lanes() []source.Lane {
	var lanes []source.Lane

	for _, s := range o.sources {
		if s != nil {
			lanes = append(lanes, s.Lane())
		}
	}

	return lanes
}

// Fetch asks all stores at the same time, and gives one value per entry of the
// plan. last is what an earlier fetch of the same plan and the same stores was
// answered, or nil: what has not changed since need not travel. What a store was
// asked by others before since does not do; the zero time takes any answer that
// is under way. An error is an *Error.
func (o *Opened) Fetch(ctx context.Context, last Answers, since time.Time) ([]render.Value, Answers, error) {
	answers := make(Answers, len(o.sources))

	var wait sync.WaitGroup

	for i, s := range o.sources {
		if s == nil {
			continue
		}

		var known []source.Result
		if i < len(last) {
			known = last[i]
		}

		wait.Go(func() {
			answers[i], o.failures[i] = ask(ctx, s, o.plan.Batches[i], known, since)
		})
	}

	wait.Wait()

	values, err := o.assemble(answers)
	if err != nil {
		return nil, nil, err
	}

	return values, answers, nil
}

func ask(ctx context.Context, s source.Source, batch plan.Batch, last []source.Result, since time.Time) ([]source.Result, error) {
	var results []source.Result

	if len(batch.Reads) > 0 {
		known := make([]string, len(batch.Reads))

		for i := range known {
			if i < len(last) && last[i].Err == nil {
				known[i] = last[i].Revision
			}
		}

		var err error
		if results, err = s.Read(ctx, batch.Reads, known, since); err != nil {
			return nil, err
		}

		for i := range results {
			if results[i].NotModified {
				results[i] = last[i]
			}
		}
	}

	for _, find := range batch.Finds {
		found, err := s.Find(ctx, find)

		typed, ok := errors.AsType[*providerclient.Error](err)

		switch {
		case ok && typed.NotFound():
			// That one secret went away while all were looked for proves nothing of
			// the others: a find says that there is nothing by finding nothing.
			lost := *typed
			lost.Code, lost.Reason = codes.Unavailable, pb.ReasonUnavailable
			results = append(results, source.Result{Err: &lost})
		case ok && typed.Item:
			results = append(results, source.Result{Err: typed})
		case err != nil:
			return nil, err
		default:
			results = append(results, source.Result{Map: found})
		}
	}

	return results, nil
}

// Values gives the values of what was fetched before.
func Values(p *plan.Plan, answers Answers) []render.Value {
	values := make([]render.Value, len(p.Entries))

	for i, entry := range p.Entries {
		result := answers[entry.Batch][index(p, entry)]
		values[i] = render.Value{Value: result.Value, Map: result.Map, Absent: result.Err != nil, Asked: askedOf(p, entry)}
	}

	return values
}

// index of an entry's answer.
func index(p *plan.Plan, entry plan.Entry) int {
	if entry.Find {
		return len(p.Batches[entry.Batch].Reads) + entry.Read
	}

	return entry.Read
}

// assemble gives each entry its value.
func (o *Opened) assemble(answers Answers) ([]render.Value, error) {
	failed := &Error{}

	for i, err := range o.failures {
		if err != nil {
			failed.Stores = append(failed.Stores, StoreFailure{Batch: o.plan.Batches[i], Err: err})
		}
	}

	// By these policies, what is proven absent is taken from the target.
	takes := o.plan.Target.Deletion != esv1.DeletionRetain

	for _, entry := range o.plan.Entries {
		if o.failures[entry.Batch] != nil {
			continue
		}

		answer := answers[entry.Batch][index(o.plan, entry)]
		err := answer.Err

		// A find says that there is nothing by finding nothing.
		if err == nil && takes && entry.Find && len(answer.Map) == 0 {
			err = &providerclient.Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Item: true, Message: "nothing was found"}
		}

		if err == nil {
			continue
		}

		gone := takes && err.NotFound()
		if gone && o.sources[entry.Batch].Healthy() {
			continue
		}

		failed.Entries = append(failed.Entries, Failure{
			Entry: entry, Store: o.plan.Batches[entry.Batch].Store, Err: err, Unproven: gone, asked: askedOf(o.plan, entry),
		})
	}

	if len(failed.Stores) > 0 || len(failed.Entries) > 0 {
		return nil, failed
	}

	return Values(o.plan, answers), nil
}
