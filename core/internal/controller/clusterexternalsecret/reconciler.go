package clusterexternalsecret

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/records"
)

const (
	// parallel namespaces of one ClusterExternalSecret.
	parallel = 8
	// staleRetry is how soon an object is looked at again when the cache lags
	// behind this process's own writes.
	staleRetry = 100 * time.Millisecond
	// Namespaces that failed are tried again at these intervals.
	shortestRetry = time.Second
	longestRetry  = 7 * time.Minute
	// An ExternalSecret that another client keeps changing is repaired at
	// these.
	shortestRepair = time.Second
	longestRepair  = time.Minute
)

// Reconciler keeps ExternalSecrets in namespaces.
type Reconciler struct {
	client  client.Client
	writer  *writer
	records *records.Map[string, record]
	now     func() time.Time
}

// New returns a reconciler. c reads from caches; direct reads from the API
// server.
func New(c client.Client, direct client.Reader) *Reconciler {
	return &Reconciler{
		client: c, writer: &writer{client: c, direct: direct}, records: records.New(newRecord), now: time.Now,
	}
}

// Reconcile brings one ClusterExternalSecret up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ces := &esv1.ClusterExternalSecret{}

	err := r.client.Get(ctx, request.NamespacedName, ces)
	if err == nil && ces.DeletionTimestamp == nil {
		return r.provision(ctx, ces)
	}

	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}

	// Its ExternalSecrets are deleted with it, by their owner references.
	r.records.Drop(request.Name)

	if err := r.releaseNamespaces(ctx, request.Name); err != nil {
		return reconcile.Result{}, err
	}

	return reconcile.Result{}, r.release(ctx, ces)
}

// release lets a deleted ClusterExternalSecret go: older operators put a
// finalizer on it.
func (r *Reconciler) release(ctx context.Context, ces *esv1.ClusterExternalSecret) error {
	before := ces.DeepCopy()
	if !controllerutil.RemoveFinalizer(ces, esv1.FinalizerClusterExternalSecretCleanup) {
		return nil
	}

	if err := r.client.Patch(ctx, ces, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot release ClusterExternalSecret %q: %w", ces.Name, err)
	}

	return nil
}

// releaseNamespaces takes the finalizers that older operators left for a
// ClusterExternalSecret off all Namespaces.
func (r *Reconciler) releaseNamespaces(ctx context.Context, name string) error {
	namespaces, err := r.namespaces(ctx, client.MatchingFields{indexFinalizer: name})
	if err != nil {
		return err
	}

	var errs []error

	for i := range namespaces {
		errs = append(errs, r.writer.release(ctx, &namespaces[i], esv1.FinalizerNamespacePrefix+name))
	}

	return errors.Join(errs...)
}

// namespaces reads metadata from the cache. It must not be changed.
func (r *Reconciler) namespaces(ctx context.Context, options ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))

	if err := r.client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("cannot list namespaces: %w", err)
	}

	for i := range list.Items {
		// Lists leave it out, and a patch asks for it.
		list.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	}

	return list.Items, nil
}

// children reads, by namespace, the ExternalSecrets that a
// ClusterExternalSecret controls, whatever their names. They must not be changed.
func (r *Reconciler) children(ctx context.Context, uid types.UID) (map[string][]*esv1.ExternalSecret, error) {
	var list esv1.ExternalSecretList
	if err := r.client.List(ctx, &list, client.MatchingFields{indexOwner: string(uid)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list ExternalSecrets: %w", err)
	}

	children := make(map[string][]*esv1.ExternalSecret, len(list.Items))
	for i := range list.Items {
		namespace := list.Items[i].Namespace
		children[namespace] = append(children[namespace], &list.Items[i])
	}

	return children, nil
}

// provision brings all namespaces up to date.
func (r *Reconciler) provision(ctx context.Context, ces *esv1.ClusterExternalSecret) (reconcile.Result, error) {
	record := r.records.Of(ces.Name)
	if record.status.Pending(ces.ResourceVersion, r.now()) {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}

	selected, err := newSelection(&ces.Spec)
	if err != nil {
		return reconcile.Result{}, r.report(ctx, ces, record, func() { unreadable(ces, err) })
	}

	want, err := newChild(ces)
	if err != nil {
		return reconcile.Result{}, err
	}

	namespaces, err := r.namespaces(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}

	children, err := r.children(ctx, ces.UID)
	if err != nil {
		return reconcile.Result{}, err
	}

	round := &round{Reconciler: r, ces: ces, want: want, record: record}

	var tasks []*task

	for i := range namespaces {
		t, err := round.plan(ctx, &namespaces[i], selected.matches(&namespaces[i]), children[namespaces[i].Name])
		if err != nil {
			return reconcile.Result{}, err
		}

		if t != nil {
			tasks = append(tasks, t)
		}
	}

	round.forgetOthers(tasks)
	inParallel(tasks, func(t *task) { r.do(ctx, want, t) })

	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err()
	}

	round.finish(ctx, tasks)

	if err := r.report(ctx, ces, record, func() { summarize(ces, want.name, tasks, record.pause) }); err != nil {
		return reconcile.Result{}, err
	}

	return reconcile.Result{RequeueAfter: round.again}, nil
}

// task is what is to be done in one namespace, and what became of it.
type task struct {
	namespace *metav1.PartialObjectMetadata
	// matches reports whether the namespace should have an ExternalSecret.
	matches bool
	// current is the ExternalSecret that is there.
	current *esv1.ExternalSecret
	// writes reports whether it has to be written.
	writes bool
	// removes lists those that are no longer selected.
	removes []*esv1.ExternalSecret
	// finalizer of an older operator that the Namespace carries.
	finalizer string
	// version of the ExternalSecret after the write.
	version string
	// failure that was met, or is known already; held says that it is known
	// from an earlier try.
	failure error
	held    bool
	// gone means that the namespace is deleted or being deleted.
	gone bool
}

// do does what is planned. Namespaces do not affect each other.
func (r *Reconciler) do(ctx context.Context, want *child, t *task) {
	var errs []error

	if t.finalizer != "" {
		errs = append(errs, r.writer.release(ctx, t.namespace, t.finalizer))
	}

	if t.writes {
		var err error
		if t.version, err = r.writer.write(ctx, want, t.namespace.Name, t.current); errors.Is(err, errGone) {
			t.gone = true
		} else {
			errs = append(errs, err)
		}
	}

	// The Secret of an ExternalSecret goes with it: the former one stays until
	// the new one is there.
	if t.failure == nil && errors.Join(errs...) == nil {
		for _, old := range t.removes {
			errs = append(errs, r.writer.remove(ctx, old))
		}
	}

	if err := errors.Join(errs...); err != nil {
		t.failure = err
	}
}

// inParallel does a few tasks at a time, so that one that hangs does not stop
// the others.
func inParallel(tasks []*task, do func(*task)) {
	var wait sync.WaitGroup

	free := make(chan struct{}, parallel)

	for _, t := range tasks {
		if !t.writes && len(t.removes) == 0 && t.finalizer == "" {
			continue
		}

		free <- struct{}{}

		wait.Go(func() {
			defer func() { <-free }()

			do(t)
		})
	}

	wait.Wait()
}

// round is one look at all namespaces of a ClusterExternalSecret.
type round struct {
	*Reconciler

	ces    *esv1.ClusterExternalSecret
	want   *child
	record *record
	// again is when to look again; 0 for never.
	again time.Duration
}

func (r *round) soon(after time.Duration) {
	if after > 0 && (r.again == 0 || after < r.again) {
		r.again = after
	}
}

// plan decides from the cache what is to be done in a namespace; nil where the
// namespace is no concern.
func (r *round) plan(ctx context.Context, namespace *metav1.PartialObjectMetadata, matches bool, children []*esv1.ExternalSecret) (*task, error) {
	t := &task{namespace: namespace, matches: matches}

	if finalizer := esv1.FinalizerNamespacePrefix + r.ces.Name; controllerutil.ContainsFinalizer(namespace, finalizer) {
		t.finalizer = finalizer
	}

	for _, current := range children {
		switch {
		case matches && current.Name == r.want.name:
			t.current = current
		case namespace.DeletionTimestamp == nil && current.DeletionTimestamp == nil:
			t.removes = append(t.removes, current)
		}
	}

	if matches {
		return t, r.compare(ctx, t)
	}

	if t.finalizer == "" && len(t.removes) == 0 {
		return nil, nil //nolint:nilnil // the namespace is no concern
	}

	return t, nil
}

// compare decides whether the ExternalSecret of a namespace has to be written.
func (r *round) compare(ctx context.Context, t *task) error {
	name := t.namespace.Name
	last, now := r.record.writes[name], r.now()

	version := ""
	if t.current != nil {
		version = t.current.ResourceVersion
	}

	ahead := last.pending(version, now)

	switch {
	case t.current != nil && t.current.DeletionTimestamp != nil:
		t.failure = &blockedError{fmt.Sprintf("ExternalSecret %q is being deleted", r.want.name)}

		return nil
	case t.current != nil && r.want.matches(t.current):
		return nil
	case ahead:
		r.soon(staleRetry)

		// Nothing is known to be wrong with what was written last, but it may
		// not be what is wanted now.
		t.writes = last.digest != r.want.digest && t.current != nil

		return nil
	case t.current == nil:
		if err := r.occupied(ctx, t); err != nil || t.failure != nil {
			return err
		}
	}

	if r.record.held(name, r.want.digest, now) {
		t.failure, t.held = last.failure, true

		return nil
	}

	// Two controllers that undo each other's writes must not do so at full speed.
	if last.wrote(r.want.digest) {
		if wait := last.repairs.Wait(now); wait > 0 {
			t.failure = &blockedError{fmt.Sprintf("ExternalSecret %q is changed or deleted by another client again and again: it is repaired at growing intervals", r.want.name)}
			r.soon(wait)

			return nil
		}
	}

	t.writes = true

	return nil
}

// occupied finds an ExternalSecret of another owner in the cache.
func (r *round) occupied(ctx context.Context, t *task) error {
	found := &esv1.ExternalSecret{}

	err := r.client.Get(ctx, client.ObjectKey{Namespace: t.namespace.Name, Name: r.want.name}, found)
	if err == nil {
		t.failure = r.want.foreign(found)

		return nil
	}

	return client.IgnoreNotFound(err)
}

// forgetOthers drops what is kept of namespaces that do not match any more: an
// ExternalSecret that comes back there was not changed by another client.
func (r *round) forgetOthers(tasks []*task) {
	match := make(map[string]bool, len(tasks))
	for _, t := range tasks {
		match[t.namespace.Name] = t.matches
	}

	for namespace := range r.record.writes {
		if !match[namespace] {
			delete(r.record.writes, namespace)
		}
	}
}

// finish records the results of a round, and decides when the next one is.
func (r *round) finish(ctx context.Context, tasks []*task) {
	failed, tried := false, false

	for _, t := range tasks {
		if t.writes && !t.gone {
			r.record.wrote(t.namespace.Name, r.want.digest, t.version, t.failure, r.now())
		}

		if t.failure == nil {
			continue
		}

		if _, blocked := errors.AsType[*blockedError](t.failure); blocked {
			continue
		}

		failed = true
		tried = tried || !t.held

		if !t.held {
			log.FromContext(ctx).Info("cannot provision", "namespace", t.namespace.Name, "error", t.failure.Error())
		}
	}

	switch {
	case !failed:
		r.record.failures = newFailures()
		r.record.until, r.record.pause = time.Time{}, 0
	case tried:
		r.record.pause = r.record.failures.Step()
		r.record.until = r.now().Add(r.record.pause)
	}

	if failed {
		r.soon(max(r.record.until.Sub(r.now()), time.Millisecond))
	}

	if refresh := r.ces.Spec.RefreshTime; refresh != nil {
		r.soon(refresh.Duration)
	}
}

// report writes the status where it differs.
func (r *Reconciler) report(ctx context.Context, ces *esv1.ClusterExternalSecret, record *record, change func()) error {
	before := ces.DeepCopy()

	change()

	if equality.Semantic.DeepEqual(before.Status, ces.Status) {
		return nil
	}

	if err := r.client.Status().Patch(ctx, ces, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of ClusterExternalSecret %q: %w", ces.Name, err)
	}

	record.status.Expect(ces.ResourceVersion, r.now())

	return nil
}
