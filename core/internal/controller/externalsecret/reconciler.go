package externalsecret

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/apply"
	"github.com/external-secrets/eso/core/internal/fetch"
	"github.com/external-secrets/eso/core/internal/plan"
	"github.com/external-secrets/eso/core/internal/render"
	"github.com/external-secrets/eso/core/internal/report"
	"github.com/external-secrets/eso/core/internal/retry"
	"github.com/external-secrets/eso/core/internal/source"
)

// staleRetry is how soon an object is looked at again when the cache lags
// behind this process's own writes.
const staleRetry = 100 * time.Millisecond

// Reconciler syncs ExternalSecrets.
type Reconciler struct {
	client   client.Client
	openers  source.Registry
	applier  *apply.Applier
	reporter *report.Reporter
	backoff  *retry.Backoff
	written  *writes
	now      func() time.Time
}

// New makes a reconciler. c reads from caches.
func New(c client.Client, openers source.Registry, reporter *report.Reporter) *Reconciler {
	return &Reconciler{
		client: c, openers: openers, applier: apply.New(c), reporter: reporter,
		backoff: retry.New(time.Second, 7*time.Minute), written: newWrites(), now: time.Now,
	}
}

// Reconcile brings one ExternalSecret up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	es := &esv1.ExternalSecret{}

	if err := r.client.Get(ctx, request.NamespacedName, es); err != nil {
		r.backoff.Forget(request.String())
		r.written.forget(request.NamespacedName)

		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	if es.DeletionTimestamp != nil {
		return reconcile.Result{}, r.release(ctx, es)
	}

	target, err := r.applier.Observe(ctx, es.Namespace, plan.TargetName(es))
	if err != nil {
		return reconcile.Result{}, err
	}

	if r.written.ahead(es, target) {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}

	p, err := plan.New(es)
	if err != nil {
		return r.failed(ctx, es, err)
	}

	dependencies, err := r.dependencies(ctx, es)
	if err != nil {
		return r.failed(ctx, es, err)
	}

	due := plan.Decide(es, dependencies, apply.Intact(es, target), r.now())
	if !due.Now {
		return reconcile.Result{RequeueAfter: due.Again()}, nil
	}

	log.FromContext(ctx).V(1).Info("syncing", "why", due.Why)

	began := r.now()

	results, err := fetch.Fetch(ctx, r.openers, p, es.Namespace)
	if err != nil {
		return r.failed(ctx, es, err)
	}

	rendered, err := render.Render(es, p, results)
	if err != nil {
		return r.failed(ctx, es, err)
	}

	outcome, err := r.applier.Apply(ctx, es, rendered, target)
	if err != nil {
		return r.failed(ctx, es, err)
	}

	r.backoff.Forget(request.String())

	if err := r.reporter.Synced(ctx, es, began, dependencies, rendered.Name, outcome); err != nil {
		return reconcile.Result{}, err
	}

	r.written.remember(es, outcome.ResourceVersion)

	return reconcile.Result{RequeueAfter: plan.Decide(es, dependencies, true, r.now()).Again()}, nil
}

// dependencies digests what the ExternalSecret's stores are at present.
func (r *Reconciler) dependencies(ctx context.Context, es *esv1.ExternalSecret) (string, error) {
	var revisions []string

	for _, store := range plan.Stores(es) {
		opener, ok := r.openers[store.APIVersion]
		if !ok {
			continue
		}

		revision, err := opener.Revision(ctx, store, es.Namespace)
		if err != nil {
			return "", err
		}

		revisions = append(revisions, fmt.Sprintf("%s/%s/%s=%s", store.APIVersion, store.Kind, store.Name, revision))
	}

	slices.Sort(revisions)

	sum := sha256.New()
	for _, revision := range revisions {
		fmt.Fprintln(sum, revision)
	}

	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// failed reports a failure and decides when to try again: soon, with growing
// pauses, unless only a change of an object can help.
func (r *Reconciler) failed(ctx context.Context, es *esv1.ExternalSecret, failure error) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err()
	}

	name := client.ObjectKeyFromObject(es)

	var again, after time.Duration

	if !permanent(failure) {
		if unread, ok := errors.AsType[*fetch.Error](failure); ok {
			after = unread.RetryAfter()
		}

		again = r.backoff.Next(name.String(), after)
	}

	log.FromContext(ctx).Info("cannot sync", "error", failure.Error(), "again", again.String())

	if err := r.reporter.Failed(ctx, es, failure, again); err != nil {
		return reconcile.Result{}, err
	}

	r.written.remember(es, "")

	if again == 0 {
		// Watches tell of every change that can help; this is for what they
		// may have missed.
		again = r.backoff.Longest()
	}

	return reconcile.Result{RequeueAfter: again}, nil
}

// permanent tells whether only a change of an object can end a failure.
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
	name := client.ObjectKeyFromObject(es)
	r.backoff.Forget(name.String())
	r.written.forget(name)

	before := es.DeepCopy()
	if !controllerutil.RemoveFinalizer(es, esv1.FinalizerCleanup) {
		return nil
	}

	if err := r.client.Patch(ctx, es, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot release ExternalSecret %q: %w", es.Name, err)
	}

	return nil
}
