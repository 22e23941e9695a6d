package externalsecret

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/generator"
	"github.com/external-secrets/eso/core/internal/metrics"
	"github.com/external-secrets/eso/core/internal/queue/admission"
	"github.com/external-secrets/eso/core/internal/records"
	"github.com/external-secrets/eso/core/internal/store/watch"
	"github.com/external-secrets/eso/core/internal/sync/apply"
	"github.com/external-secrets/eso/core/internal/sync/fetch"
	"github.com/external-secrets/eso/core/internal/sync/objectwatch"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
	"github.com/external-secrets/eso/core/internal/sync/report"
	"github.com/external-secrets/eso/core/store"
)

const (
	// staleRetry is how soon an object is reconciled again when the cache lags
	// behind this process's own writes.
	staleRetry = 100 * time.Millisecond
	// deferredRetry is how soon an object that waits for a busy store is reconciled
	// in any case; usually it is woken before.
	deferredRetry = time.Minute
	// pendingRetry is how soon an object is reconciled again whose target or
	// templates are not known yet; usually it is woken before.
	pendingRetry = 10 * time.Second
	// missingRetry is how soon the existence of a target that another client has to create
	// is checked again, where its kind is not watched.
	missingRetry = 30 * time.Second
	// A target that another client keeps changing is repaired at these
	// intervals.
	shortestRepair = time.Second
	longestRepair  = 5 * time.Minute
)

// Options of a Reconciler.
type Options struct {
	// Class of this operator.
	Class string
	// Concurrent syncs.
	Concurrent int
	// MemoryBytes bounds the values that stores returned last and that are kept.
	MemoryBytes int
	// GenericTargets allows targets that are no Secrets.
	GenericTargets bool
}

// Dependencies of a Reconciler.
type Dependencies struct {
	// Client reads from caches.
	Client client.Client
	// Direct reads from the API server.
	Direct client.Reader
	// Stores and Generators are resolved by apiVersion.
	Stores     store.Resolvers
	Generators generator.Resolvers
	// Renderer of targets.
	Renderer *render.Renderer
	// Reporter of the results of syncs.
	Reporter *report.Reporter
	// Metrics of syncs.
	Metrics *metrics.Recorder
}

// Reconciler syncs ExternalSecrets.
type Reconciler struct {
	Dependencies

	options   Options
	fetcher   *fetch.Fetcher
	secrets   *apply.Secrets
	manifests *apply.Manifests
	// kinds, objects and stores are watched as long as ExternalSecrets name them.
	kinds   *kinds
	objects *objectwatch.Watcher
	stores  *watch.Watches
	records *records.Map[types.NamespacedName, record]
	memory  *fetch.Memory
	busy    *admission.Limiter[types.NamespacedName]
	// refreshWrites are the write slots of periodic refreshes.
	refreshWrites chan struct{}
	queue         *controllerQueue
	now           func() time.Time
}

// New returns a reconciler.
func New(dependencies Dependencies, options Options) *Reconciler {
	r := &Reconciler{
		Dependencies:  dependencies,
		options:       options,
		fetcher:       fetch.New(dependencies.Stores, dependencies.Generators),
		secrets:       apply.NewSecrets(dependencies.Client, dependencies.Direct),
		memory:        fetch.NewMemory(options.MemoryBytes),
		refreshWrites: make(chan struct{}, max(1, options.Concurrent/8)),
		queue:         &controllerQueue{},
		now:           time.Now,
	}
	r.records = records.New(r.newRecord)
	r.stores = watch.New(func(names ...types.NamespacedName) { r.enqueue(changed, names...) })
	r.busy = admission.New(options.Concurrent, func(name types.NamespacedName, priority int) { r.queue.add(priority, name) })

	return r
}

// syncContext is what is known of one ExternalSecret while it is reconciled.
type syncContext struct {
	es     *esv1.ExternalSecret
	name   types.NamespacedName
	record *record
	plan   *plan.Plan
	// stores that the ExternalSecret refers to, resolved once.
	stores fetch.Stores
	// target writes and judges the target.
	target apply.Writer
	// current is the target as far as it is known; nil where there is none.
	current client.Object
	// objects that templates are read from.
	objects render.Objects
	// dependencies is the digest of stores and objects.
	dependencies string
	// began is when the reconciliation started.
	began time.Time
	// entered means that it has called TryAcquire.
	entered bool
	// mark is what had been reported when the stores were read.
	mark watch.Mark
}

// version of what the stores' answers depend on.
func (s *syncContext) version() string {
	return fmt.Sprintf("%s/%d/%s", s.es.UID, s.es.Generation, s.dependencies)
}

// Reconcile brings one ExternalSecret up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	s := &syncContext{name: request.NamespacedName, began: r.now()}
	result, err := r.reconcile(ctx, s)

	// An object that was woken because its store has room, and does not read, must
	// cancel that.
	if !s.entered {
		r.busy.Cancel(s.name)
	}

	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, s *syncContext) (reconcile.Result, error) {
	es := &esv1.ExternalSecret{}

	if err := r.Client.Get(ctx, s.name, es); err != nil {
		r.forget(s.name)

		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	if es.DeletionTimestamp != nil {
		return reconcile.Result{}, r.release(ctx, es)
	}

	s.es, s.target, s.record = es, r.writer(es), r.records.Of(s.name)
	follow(s.record.kind, plan.TargetOf(es).Manifest)

	var err error
	if s.stores, err = r.fetcher.Resolve(ctx, plan.Stores(es), es.Namespace); err != nil {
		return reconcile.Result{}, err
	}

	skipped, err := r.skip(ctx, s)
	if skipped || err != nil {
		s.record.stores.Close()

		return reconcile.Result{}, err
	}

	if s.plan, err = plan.New(es, r.Generators.Serves); err != nil {
		s.record.stores.Close()

		return r.failed(ctx, s, err)
	}

	if s.current, err = s.target.Observe(ctx, es); err != nil {
		return r.unknown(ctx, s, err)
	}

	if s.record.pending(es, s.current, r.now()) {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}

	if r.subscribe(s) {
		s.record.stores.Close()

		return r.waiting(ctx, s)
	}

	if err := r.dependOn(s); err != nil {
		return r.unknown(ctx, s, err)
	}

	r.subscribeStores(s)

	due := plan.Decide(es, r.state(s))
	if due.Now {
		return r.sync(ctx, s, due)
	}

	// Failures since the last sync are resolved. That is not known if a sync
	// window defers the refresh.
	if !due.Held {
		s.record.failures = newFailures()

		err = r.Reporter.Recovered(ctx, es)
	}

	return again(es, due.Again()), err
}

// unknown handles the error of something that could not be read: what is not known
// yet enqueues the object when it is.
func (r *Reconciler) unknown(ctx context.Context, s *syncContext, err error) (reconcile.Result, error) {
	if errors.Is(err, objectwatch.ErrPending) {
		return again(s.es, pendingRetry), nil
	}

	return r.failed(ctx, s, err)
}

// writer of an ExternalSecret's target.
func (r *Reconciler) writer(es *esv1.ExternalSecret) apply.Writer {
	if plan.TargetOf(es).IsSecret() {
		return r.secrets
	}

	return r.manifests
}

// again reconciles an object after a while, with the priority of a periodic
// refresh unless it was never synced.
func again(es *esv1.ExternalSecret, after time.Duration) reconcile.Result {
	priority := priorityOf(es, periodic)

	return reconcile.Result{RequeueAfter: after, Priority: &priority}
}

// state is what is known of the target and of what it is rendered from.
func (r *Reconciler) state(s *syncContext) plan.State {
	intact := s.target.Intact(s.es, s.current)
	// Where the stores had nothing, no target is missed.
	if s.current == nil && s.es.Status.Binding == nil && !s.es.Status.RefreshTime.IsZero() {
		intact = true
	}

	// If the target differs from the one in the status, the former one may still
	// exist: an operator can be killed in between.
	if binding := s.es.Status.Binding; binding != nil && s.plan.Target.Owns() && binding.Name != s.plan.Target.Name {
		intact = false
	}

	return plan.State{Dependencies: s.dependencies, Intact: intact, Frozen: s.target.Frozen(s.es, s.current), Reported: s.record.stores.Changed(), Now: r.now()}
}

// skip leaves an ExternalSecret to another operator where one of its stores
// does.
func (r *Reconciler) skip(ctx context.Context, s *syncContext) (bool, error) {
	for _, reference := range plan.Stores(s.es) {
		if class := s.stores[reference].Class; class != "" && class != r.options.Class {
			return true, r.Reporter.Skipped(ctx, s.es, reference.String(), class)
		}
	}

	return false, nil
}

// subscribe watches the objects that the ExternalSecret names, and reports whether
// its target has to be created by another client.
func (r *Reconciler) subscribe(s *syncContext) (waits bool) {
	var keys []objectwatch.Key

	for _, object := range plan.Objects(s.es) {
		keys = append(keys, objectwatch.Key{Kind: objectwatch.Kind(object.Kind), Namespace: s.es.Namespace, Name: object.Name})
	}

	waits = s.current == nil && s.plan.Target.Creation == esv1.CreationMerge
	if waits && s.plan.Target.IsSecret() {
		keys = append(keys, objectwatch.Key{Kind: objectwatch.Target, Namespace: s.es.Namespace, Name: s.plan.Target.Name})
	}

	s.record.objects.Replace(keys...)

	return waits
}

// subscribeStores watches the stores whose backends report changes, for an
// ExternalSecret that refreshes at all. A store that cannot be watched now is
// read by the interval.
func (r *Reconciler) subscribeStores(s *syncContext) {
	var sources []watch.Source

	if plan.Refreshes(s.es) {
		for _, batch := range s.plan.Batches {
			watcher := s.stores[batch.Store].Watcher
			if watcher == nil {
				continue
			}

			// This function is kept for long and must not retain the rest of s.
			reference, namespace := batch.Store, s.es.Namespace
			open := func(ctx context.Context) (store.Watcher, error) { return r.fetcher.Watcher(ctx, reference, namespace) }

			sources = append(sources, watch.Source{Name: watcher.Name(), Open: open, Keys: keysOf(batch)})
		}
	}

	s.record.stores.Replace(sources...)
}

// keysOf are the keys that a batch reads; nil where it searches.
func keysOf(batch plan.Batch) []string {
	if len(batch.Finds) > 0 {
		return nil
	}

	keys := make([]string, 0, len(batch.Reads))

	for _, read := range batch.Reads {
		if !slices.Contains(keys, read.Key) {
			keys = append(keys, read.Key)
		}
	}

	return keys
}

// waiting reports that the target does not exist. The creation of a Secret is
// watched; other kinds are polled.
func (r *Reconciler) waiting(ctx context.Context, s *syncContext) (reconcile.Result, error) {
	s.record.failures = newFailures()

	if err := r.Reporter.Waiting(ctx, s.es, s.plan.Target); err != nil {
		return reconcile.Result{}, err
	}

	s.record.wrote(s.es, "", r.now())

	if s.plan.Target.IsSecret() {
		return reconcile.Result{}, nil
	}

	return again(s.es, missingRetry), nil
}

// dependOn reads the objects that templates are read from, and digests what
// they and the stores are at present.
func (r *Reconciler) dependOn(s *syncContext) error {
	var revisions []string

	for reference, snapshot := range s.stores {
		revisions = append(revisions, fmt.Sprintf("%s/%s/%s=%s", reference.APIVersion, reference.Kind, reference.Name, snapshot.Revision))
	}

	s.objects = render.Objects{}

	for _, object := range plan.Objects(s.es) {
		content, ok, err := r.objects.Content(objectwatch.Key{Kind: objectwatch.Kind(object.Kind), Namespace: s.es.Namespace, Name: object.Name})
		if err != nil {
			return err
		}

		digest := "absent"

		if ok {
			s.objects[object] = content
			digest = objectwatch.Digest(content)
		}

		revisions = append(revisions, object.Kind+"/"+object.Name+"="+digest)
	}

	slices.Sort(revisions)

	sum := sha256.New()
	for _, revision := range revisions {
		fmt.Fprintln(sum, revision)
	}

	s.dependencies = hex.EncodeToString(sum.Sum(nil)[:8])

	return nil
}

// sync does what is due.
func (r *Reconciler) sync(ctx context.Context, s *syncContext, due plan.Due) (reconcile.Result, error) {
	log.FromContext(ctx).V(1).Info("syncing", "why", due.Why)

	if due.Repair {
		if wait := s.record.repairs.Wait(r.now()); wait > 0 {
			// Its refresh does not wait for the repair.
			if due.Next > 0 {
				wait = min(wait, due.Next)
			}

			return again(s.es, wait), nil
		}
	}

	values, began, err := r.values(ctx, s, due)

	switch {
	case errors.Is(err, errBusy):
		r.Metrics.Deferred()

		return again(s.es, deferredRetry), nil
	case err != nil:
		return r.failed(ctx, s, err)
	}

	rendered, err := r.Renderer.Render(s.es, s.plan, values, s.objects)
	if err != nil {
		return r.failed(ctx, s, err)
	}

	result := report.Sync{Began: began, Dependencies: s.dependencies, Target: rendered.Target, Absent: rendered.Absent}

	if due.Periodic {
		release, err := r.acquireWrite(ctx)
		if err != nil {
			return reconcile.Result{}, err
		}
		defer release()
	}

	if err := r.write(ctx, s, rendered, &result); err != nil {
		if _, gone := errors.AsType[*apply.GoneError](err); gone {
			// The object has been deleted or changed since it was read from the cache.
			return reconcile.Result{RequeueAfter: staleRetry}, nil
		}

		return r.failed(ctx, s, err)
	}

	if due.Repair {
		r.Metrics.Repaired()
	}

	s.record.failures = newFailures()
	r.Metrics.Synced(s.name, r.now().Sub(s.began), false)

	if err := r.Reporter.Synced(ctx, s.es, result); err != nil {
		return reconcile.Result{}, err
	}

	s.record.wrote(s.es, result.Outcome.ResourceVersion, r.now())

	if !began.IsZero() {
		s.record.stores.Synced(s.mark)
	}

	state := r.state(s)
	state.Intact = true

	return again(s.es, plan.Decide(s.es, state).Again()), nil
}

// acquireWrite waits for one of the few write slots of periodic refreshes. Their
// writes would queue at the API server together with those of first syncs, which
// the priority of the work queue has no influence on. A worker that waits here
// is free again after a few writes.
//
// Measured with bench first-among-refreshes, 1,000 objects, on a shared machine
// of 2 cores: from creation to Ready 141 ms (p50) and 843 ms (p99) with slots,
// 1.17 s and 3.20 s without, at 194 and 196 refreshes per second.
func (r *Reconciler) acquireWrite(ctx context.Context) (release func(), err error) {
	select {
	case r.refreshWrites <- struct{}{}:
		return func() { <-r.refreshWrites }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errBusy says that the stores or their providers have no room for another
// read now.
var errBusy = errors.New("the store or its provider is busy")

// values returns the value of each entry of the plan: what was fetched last,
// where only the target has to be repaired, or what the stores say now. began
// is when they were asked.
func (r *Reconciler) values(ctx context.Context, s *syncContext, due plan.Due) (values []render.Value, began time.Time, err error) {
	last := r.memory.Recall(s.name, s.version())
	if due.Repair && last != nil {
		return fetch.Values(s.plan, last), time.Time{}, nil
	}

	opened := r.fetcher.Open(s.plan, s.stores, s.es.Namespace)

	priority := priorityOf(s.es, changed)
	if due.Periodic {
		priority = periodic
	}

	s.entered = true

	release, ok := r.busy.TryAcquire(s.name, priority, r.flows(opened.Flows()))
	if !ok {
		return nil, time.Time{}, errBusy
	}
	defer release()

	began = r.now()

	s.mark = s.record.stores.Reading()

	values, answers, err := opened.Fetch(ctx, last, s.since(due))
	if err != nil {
		return nil, time.Time{}, err
	}

	r.memory.Remember(s.name, s.version(), answers)

	return values, began, nil
}

// since is the time before which others must not have begun a read that this one
// takes the answer of: what they read may be older than what is asked for. That
// is when the backend reported a change, when the ExternalSecret was created, in
// whole seconds, and, where a user has changed it since, the start of this sync.
func (s *syncContext) since(due plan.Due) time.Time {
	since := s.mark.Reported

	later := func(other time.Time) {
		if other.After(since) {
			since = other
		}
	}

	if s.es.Status.RefreshTime.IsZero() {
		later(s.es.CreationTimestamp.Time)
	}

	if due.Asked {
		later(s.began)
	}

	return since
}

// flows returns the shares of the workers that stores and providers have: an eighth to
// each store, and more while others leave them idle; three quarters to each
// provider.
func (r *Reconciler) flows(flows []store.Flow) []admission.Flow {
	lanes := make([]admission.Flow, 0, 2*len(flows))

	for _, flow := range flows {
		lanes = append(lanes,
			admission.Flow{Name: "provider " + flow.Provider, Share: max(1, r.options.Concurrent*3/4)},
			admission.Flow{Name: "store " + flow.Store, Share: max(1, r.options.Concurrent/8), Elastic: true},
		)
	}

	return lanes
}

// write brings the target to what was rendered, or, where the stores have
// nothing, what the deletion policy says.
func (r *Reconciler) write(ctx context.Context, s *syncContext, target *render.Target, result *report.Sync) (err error) {
	switch target.Action() {
	case render.Deleted:
		// Also where an operator that died has deleted it already.
		result.Deleted = true
		result.Outcome, err = s.target.Delete(ctx, s.es, s.current)
	case render.Retained:
		result.Retained, result.Exists = true, s.current != nil
	case render.Written:
		result.Outcome, err = s.target.Apply(ctx, s.es, target, s.current)
		result.Exists = target.Creation != esv1.CreationNone
	}

	return err
}

// failed reports a failure and decides when to try again: soon, with growing
// pauses, unless only a change of an object can help.
func (r *Reconciler) failed(ctx context.Context, s *syncContext, failure error) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err()
	}

	var pause, after time.Duration

	if !permanent(failure) {
		if unread, ok := errors.AsType[*fetch.Error](failure); ok {
			after = unread.RetryAfter()
		}

		pause = max(s.record.failures.Step(), after)
	}

	r.Metrics.Synced(s.name, r.now().Sub(s.began), true)
	log.FromContext(ctx).Info("cannot sync", "error", failure.Error(), "again", pause.String())

	if err := r.Reporter.Failed(ctx, s.es, failure, pause); err != nil {
		return reconcile.Result{}, err
	}

	s.record.wrote(s.es, "", r.now())

	if pause == 0 {
		// Watches report every change that can help; this is for what they
		// may have missed.
		pause = longestRetry
	}

	return again(s.es, pause), nil
}

// permanent reports whether only a change of an object can end a failure.
func permanent(failure error) bool {
	var (
		unread    *fetch.Error
		malformed *plan.Error
		owned     *apply.OwnershipError
	)

	switch {
	case errors.As(failure, &malformed), errors.As(failure, &owned):
		return true
	case errors.As(failure, &unread):
		return unread.Permanent()
	default:
		return false
	}
}

// release lets a deleted ExternalSecret go. Its target goes with it by its
// owner reference; only older operators put a finalizer on it.
func (r *Reconciler) release(ctx context.Context, es *esv1.ExternalSecret) error {
	r.forget(client.ObjectKeyFromObject(es))

	before := es.DeepCopy()
	if !controllerutil.RemoveFinalizer(es, esv1.FinalizerCleanup) {
		return nil
	}

	if err := r.Client.Patch(ctx, es, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot release ExternalSecret %q: %w", es.Name, err)
	}

	return nil
}
