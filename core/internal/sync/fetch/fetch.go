// Package fetch reads everything that a plan needs: one batch per store, all
// stores at the same time. It must never decide anything: what is read is defined
// by the plan, what becomes of it is decided by render.
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

	"github.com/external-secrets/eso/core/generator"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
	"github.com/external-secrets/eso/core/store"
)

// shownFailures bounds the failures that an error's text lists.
const shownFailures = 3

// Failure is why one entry could not be read.
type Failure struct {
	// Entry that failed.
	Entry plan.Entry
	// Source that was read: a store or a generator.
	Source string
	// Err is the reason.
	Err *store.Error
	// Unproven says that the deletion policy would have taken the secret for
	// gone, had the store been well.
	Unproven bool

	// asked says what was asked for.
	asked string
}

// String names entry, store, key and reason.
func (f Failure) String() string {
	text := fmt.Sprintf("%s: %s: %s: %s", f.Entry.Field, f.Source, f.asked, f.Err.Error())

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
		if name := f.Batch.Source(); !strings.Contains(text, name) {
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

// RetryAfter is the pause that the backends ask for; 0 means that none did.
func (e *Error) RetryAfter() time.Duration {
	var after time.Duration

	for _, f := range e.Stores {
		if typed, ok := errors.AsType[*store.Error](f.Err); ok {
			after = max(after, typed.RetryAfter)
		}
	}

	for _, f := range e.Entries {
		after = max(after, f.Err.RetryAfter)
	}

	return after
}

// Permanent reports whether only a change of an object can end the failure, so
// that trying again before is of no use.
func (e *Error) Permanent() bool {
	if len(e.Entries) > 0 {
		return false
	}

	for _, f := range e.Stores {
		var (
			denial   *store.DenialError
			unserved *store.UnservedError
		)

		if !errors.As(f.Err, &denial) && !errors.As(f.Err, &unserved) {
			return false
		}
	}

	return true
}

// asked says what a batch asks for.
func asked(batch plan.Batch) string {
	if batch.Generator != nil {
		return batch.Field
	}

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

	switch {
	case batch.Generator != nil:
		return batch.Generator.String()
	case entry.Find:
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
type Answers [][]store.Result

// Fetcher reads what plans need.
type Fetcher struct {
	stores     store.Resolvers
	generators generator.Resolvers
	flights    *flights
}

// New returns a Fetcher that resolves stores and generators by apiVersion.
func New(stores store.Resolvers, generators generator.Resolvers) *Fetcher {
	return &Fetcher{stores: stores, generators: generators, flights: newFlights()}
}

// Stores are the snapshots of the stores that one object refers to.
type Stores map[store.Reference]store.Snapshot

// Resolve resolves each store once. References whose apiVersion has no resolver
// are left out: Fetch reports them.
func (f *Fetcher) Resolve(ctx context.Context, references []store.Reference, namespace string) (Stores, error) {
	stores := make(Stores, len(references))

	for _, reference := range references {
		resolver, ok := f.stores[reference.APIVersion]
		if !ok {
			continue
		}

		snapshot, err := resolver.Resolve(ctx, reference, namespace)
		if err != nil {
			return nil, err
		}

		if snapshot.Gate == nil && snapshot.Client == nil {
			return nil, fmt.Errorf("cannot read %s: the resolver of %s returned neither a client nor a reason", reference, reference.APIVersion)
		}

		stores[reference] = qualified(reference.APIVersion, snapshot)
	}

	return stores, nil
}

// qualified makes the identity and the watcher's name of a snapshot differ from
// those of other resolvers: neither reads nor watches of one are shared with
// another, whatever names they choose.
func qualified(apiVersion string, snapshot store.Snapshot) store.Snapshot {
	if snapshot.Identity != "" {
		snapshot.Identity = apiVersion + " " + snapshot.Identity
	}

	if snapshot.Watcher != nil {
		snapshot.Watcher = qualifiedWatcher{Watcher: snapshot.Watcher, name: apiVersion + " " + snapshot.Watcher.Name()}
	}

	return snapshot
}

type qualifiedWatcher struct {
	store.Watcher

	name string
}

// Name is unique among all resolvers.
func (w qualifiedWatcher) Name() string { return w.name }

// Watcher resolves a store again and returns its watcher; nil where it has none.
// The reason that the store must not be read is an error.
func (f *Fetcher) Watcher(ctx context.Context, reference store.Reference, namespace string) (store.Watcher, error) {
	stores, err := f.Resolve(ctx, []store.Reference{reference}, namespace)
	if err != nil {
		return nil, err
	}

	return stores[reference].Watcher, stores[reference].Gate
}

// Opened is a plan that is ready to be read.
type Opened struct {
	fetcher   *Fetcher
	plan      *plan.Plan
	namespace string
	snapshots []store.Snapshot
	failures  []error
}

// Open prepares to read a plan for an object of a namespace. A store that must
// not be read is reported by Fetch, together with what fails there.
func (f *Fetcher) Open(p *plan.Plan, stores Stores, namespace string) *Opened {
	o := &Opened{
		fetcher: f, plan: p, namespace: namespace,
		snapshots: make([]store.Snapshot, len(p.Batches)), failures: make([]error, len(p.Batches)),
	}

	for i, batch := range p.Batches {
		if batch.Generator != nil {
			o.snapshots[i].Healthy = true

			continue
		}

		snapshot, ok := stores[batch.Store]

		switch {
		case !ok:
			o.failures[i] = f.stores.Unserved(batch.Store, batch.Field)
		case snapshot.Gate != nil:
			o.failures[i] = snapshot.Gate
		default:
			o.snapshots[i] = snapshot
		}
	}

	return o
}

// Flows are what a fetch occupies.
func (o *Opened) Flows() []store.Flow {
	var flows []store.Flow

	for i, snapshot := range o.snapshots {
		if o.failures[i] == nil && snapshot.Flow != (store.Flow{}) {
			flows = append(flows, snapshot.Flow)
		}
	}

	return flows
}

// Fetch reads all stores at the same time and returns one value per entry of
// the plan. last is what an earlier fetch of the same plan and the same stores
// returned, or nil: what has not changed since need not be sent. Results of
// other callers' reads that were started before since are not shared; the zero
// time shares all. An error is an *Error.
func (o *Opened) Fetch(ctx context.Context, last Answers, since time.Time) ([]render.Value, Answers, error) {
	answers := make(Answers, len(o.plan.Batches))

	var wait sync.WaitGroup

	for i, batch := range o.plan.Batches {
		if o.failures[i] != nil {
			continue
		}

		var known []store.Result
		if i < len(last) {
			known = last[i]
		}

		wait.Go(func() {
			if batch.Generator != nil {
				answers[i], o.failures[i] = o.generate(ctx, *batch.Generator)
			} else {
				answers[i], o.failures[i] = o.read(ctx, o.snapshots[i], batch, known, since)
			}
		})
	}

	wait.Wait()

	values, err := o.assemble(answers)
	if err != nil {
		return nil, nil, err
	}

	return values, answers, nil
}

func (o *Opened) generate(ctx context.Context, reference generator.Reference) ([]store.Result, error) {
	resolver, ok := o.fetcher.generators[reference.APIVersion]
	if !ok {
		return nil, fmt.Errorf("cannot call %s: this build serves no generator of %s", reference, reference.APIVersion)
	}

	values, err := resolver.Generate(ctx, reference, o.namespace)
	if err != nil {
		return nil, err
	}

	return []store.Result{{Map: values}}, nil
}

func (o *Opened) read(ctx context.Context, snapshot store.Snapshot, batch plan.Batch, last []store.Result, since time.Time) ([]store.Result, error) {
	var results []store.Result

	if len(batch.Reads) > 0 {
		known := make([]string, len(batch.Reads))

		for i := range known {
			if i < len(last) && last[i].Err == nil {
				known[i] = last[i].Revision
			}
		}

		var err error
		if results, err = o.fetcher.readAll(ctx, snapshot, batch.Reads, known, since); err != nil {
			return nil, err
		}

		for i := range results {
			if results[i].NotModified {
				results[i] = last[i]
			}
		}
	}

	for _, find := range batch.Finds {
		found, err := snapshot.Client.Find(ctx, find)

		typed, ok := errors.AsType[*store.Error](err)

		switch {
		case ok && typed.NotFound():
			// One secret that was deleted during the search proves nothing about the
			// others: a search that matches nothing returns an empty result.
			lost := *typed
			lost.Code, lost.Reason = codes.Unavailable, pb.ReasonUnavailable
			results = append(results, store.Result{Err: &lost})
		case ok && typed.Item:
			results = append(results, store.Result{Err: typed})
		case err != nil:
			return nil, err
		default:
			results = append(results, store.Result{Map: found})
		}
	}

	return results, nil
}

// readAll performs reads, sharing those that are in flight, and checks that the
// client answered what was asked.
func (f *Fetcher) readAll(ctx context.Context, snapshot store.Snapshot, reads []store.Read, known []string, since time.Time) ([]store.Result, error) {
	ask := func(ctx context.Context, reads []store.Read, known []string) ([]store.Result, error) {
		results, err := snapshot.Client.Read(ctx, reads, known)
		if err != nil {
			return nil, err
		}

		if len(results) != len(reads) {
			return nil, fmt.Errorf("cannot use the store's answer: it has %d results for %d reads", len(results), len(reads))
		}

		for i, result := range results {
			if result.NotModified && (known[i] == "" || known[i] != result.Revision) {
				return nil, fmt.Errorf("cannot use the store's answer: it says that revision %q is not modified, which was not asked about", result.Revision)
			}
		}

		return results, nil
	}

	if snapshot.Identity == "" {
		return ask(ctx, reads, known)
	}

	return f.flights.read(ctx, snapshot.Identity, reads, known, since, ask)
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
	if p.Batches[entry.Batch].Generator != nil {
		return 0
	}

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
			err = &store.Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Item: true, Message: "nothing was found"}
		}

		if err == nil {
			continue
		}

		gone := takes && err.NotFound()
		if gone && o.snapshots[entry.Batch].Healthy {
			continue
		}

		failed.Entries = append(failed.Entries, Failure{
			Entry: entry, Source: o.plan.Batches[entry.Batch].Source(), Err: err, Unproven: gone, asked: askedOf(o.plan, entry),
		})
	}

	if len(failed.Stores) > 0 || len(failed.Entries) > 0 {
		return nil, failed
	}

	return Values(o.plan, answers), nil
}
