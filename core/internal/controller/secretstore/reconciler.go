package secretstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/expectation"
	"github.com/external-secrets/eso/core/internal/queue/backoff"
	"github.com/external-secrets/eso/core/internal/records"
	"github.com/external-secrets/eso/core/internal/statustext"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/store"
)

// staleRetry is how soon a store is validated again that the cache shows as it
// was before the last write.
const staleRetry = 50 * time.Millisecond

// shortestInterval between two validations of a store, whatever it asks for.
const shortestInterval = time.Second

// busyRetry is how soon a store is validated again whose tenant has as many
// validations under way as it may.
const busyRetry = time.Second

// shares bounds what each tenant has under way.
type shares struct {
	limit int

	mu    sync.Mutex
	inUse map[string]int
}

func (s *shares) take(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.inUse[tenant] >= s.limit {
		return false
	}

	s.inUse[tenant]++

	return true
}

func (s *shares) give(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.inUse[tenant]--; s.inUse[tenant] == 0 {
		delete(s.inUse, tenant)
	}
}

// Options of a Reconciler.
type Options struct {
	// Class of this operator; stores of other classes are ignored.
	Class string
	// RefreshInterval of stores that name none.
	RefreshInterval time.Duration
	// Workers that validate at the same time.
	Workers int
}

// Reconciler validates the stores of one kind.
type Reconciler struct {
	kind     string
	client   client.Client
	resolver *resolver.Binder
	pool     *providerclient.Pool
	events   events.EventRecorder
	options  Options
	records  *records.Map[reconcile.Request, record]
	busy     *shares
}

// record is what this process remembers of a store. One worker at a time uses
// it.
type record struct {
	// failures are the pauses after failures since the last success.
	failures wait.Backoff
	// written is the version after the last write of the status.
	written expectation.Expectation
}

func newRecord(reconcile.Request) *record { return &record{failures: newFailures()} }

func newFailures() wait.Backoff { return backoff.New(time.Second, time.Minute) }

// New returns a reconciler for SecretStore or ClusterSecretStore. c reads from a
// cache.
func New(kind string, c client.Client, resolver *resolver.Binder, pool *providerclient.Pool, recorder events.EventRecorder, options Options) *Reconciler {
	return &Reconciler{
		kind: kind, client: c, resolver: resolver, pool: pool, events: recorder, options: options,
		records: records.New(newRecord),
		busy:    &shares{limit: max(1, options.Workers/4), inUse: map[string]int{}},
	}
}

// verdict is what became of a validation.
type verdict struct {
	status   metav1.ConditionStatus
	reason   string
	message  string
	warnings []string
	// retry says that trying again may help although nothing changes.
	retry bool
}

// Reconcile validates one store.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	s, err := resolver.Get(ctx, r.client, resolver.Key{Kind: r.kind, Namespace: request.Namespace, Name: request.Name})
	if err != nil {
		if _, absent := errors.AsType[*store.DenialError](err); absent {
			r.records.Drop(request)

			return reconcile.Result{}, nil
		}

		return reconcile.Result{}, err
	}

	if s.Object.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}

	// In comparison with a status that is older than the last write, a change
	// back would look like none.
	record := r.records.Of(request)
	if record.written.Pending(s.Object.GetResourceVersion(), time.Now()) {
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	}

	before, _ := s.Object.DeepCopyObject().(client.Object)

	if class := s.Spec.Controller; class != "" && class != r.options.Class {
		return reconcile.Result{}, r.skip(ctx, s, before, record, class)
	}

	// A provider, or a backend, that hangs must not keep all workers from the
	// stores of other tenants.
	tenant := cmp.Or(request.Namespace, s.Spec.ProviderConfig.ProviderRef.Namespace)
	if !r.busy.take(tenant) {
		return reconcile.Result{RequeueAfter: busyRetry}, nil
	}
	defer r.busy.give(tenant)

	result := r.validate(ctx, s)

	interval := max(s.RefreshInterval(r.options.RefreshInterval), shortestInterval)
	if result.retry {
		interval = min(interval, record.failures.Step())
		result.message += "; next try in " + interval.Round(time.Second/10).String()
	} else {
		record.failures = newFailures()
	}

	if err := r.report(ctx, s, before, record, result); err != nil {
		return reconcile.Result{}, err
	}

	return reconcile.Result{RequeueAfter: interval}, nil
}

// skip reports in the status of a store of another class that another operator
// serves it. A status that the other operator has written is not changed.
func (r *Reconciler) skip(ctx context.Context, s *resolver.Store, before client.Object, record *record, class string) error {
	ready := s.Ready()
	if ready != nil && (ready.Reason != v2alpha1.ReasonOtherController || ready.ObservedGeneration == s.Object.GetGeneration()) {
		return nil
	}

	return r.report(ctx, s, before, record, verdict{
		status: metav1.ConditionUnknown, reason: v2alpha1.ReasonOtherController,
		message: fmt.Sprintf("spec.controller is %q: this operator serves class %q and leaves the store to another one", class, r.options.Class),
	})
}

// validate binds the store and calls its provider. It updates the store's
// status but for the condition.
func (r *Reconciler) validate(ctx context.Context, s *resolver.Store) verdict {
	bound, err := r.resolver.Bind(ctx, s)
	if err != nil {
		if denial, ok := errors.AsType[*store.DenialError](err); ok {
			return verdict{status: metav1.ConditionFalse, reason: denial.Reason, message: denial.Message, retry: denial.Retry}
		}

		return verdict{status: metav1.ConditionFalse, reason: v2alpha1.ReasonProviderUnavailable, message: err.Error(), retry: true}
	}

	s.Status.Revision = bound.Revision
	s.Status.Capabilities = bound.Capabilities
	s.Status.Summary = &v2alpha1.StoreSummary{Capabilities: strings.Join(bound.Capabilities, ",")}
	s.Status.Provider = &v2alpha1.ProviderInfo{Name: bound.Provider, Version: bound.Version, Protocol: pb.ProtocolVersion}

	client, err := r.pool.Client(bound.Endpoint, bound.Caller)
	if err != nil {
		return verdict{status: metav1.ConditionFalse, reason: v2alpha1.ReasonProviderUnavailable, message: err.Error(), retry: true}
	}

	answer, err := client.Validate(ctx, bound.Call(""))
	if err != nil {
		return verdict{status: metav1.ConditionFalse, reason: v2alpha1.ReasonProviderUnavailable, message: err.Error(), retry: true}
	}

	switch answer.GetVerdict() {
	case pb.ValidateResponse_VERDICT_VALID:
		return verdict{status: metav1.ConditionTrue, reason: v2alpha1.ReasonValid, message: "store validated", warnings: answer.GetWarnings()}
	case pb.ValidateResponse_VERDICT_UNKNOWN:
		return verdict{status: metav1.ConditionTrue, reason: v2alpha1.ReasonValidationUnknown, message: answer.GetMessage(), warnings: answer.GetWarnings()}
	default:
		// The config may refer to what is about to come into being.
		return verdict{status: metav1.ConditionFalse, reason: v2alpha1.ReasonInvalidProviderConfig, message: answer.GetMessage(), warnings: answer.GetWarnings(), retry: true}
	}
}

func (r *Reconciler) report(ctx context.Context, s *resolver.Store, before client.Object, record *record, result verdict) error {
	text := result.message
	if len(result.warnings) > 0 {
		text += "; warnings: " + strings.Join(result.warnings, "; ")
	}

	text = statustext.Cut(text, statustext.MaxCondition)

	was := s.Ready()
	changed := was == nil || was.Status != result.status || was.Reason != result.reason

	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: v2alpha1.ConditionReady, Status: result.status, Reason: result.reason, Message: text,
		ObservedGeneration: s.Object.GetGeneration(),
	})

	if equality.Semantic.DeepEqual(before, s.Object) {
		return nil
	}

	if changed {
		kind := corev1.EventTypeNormal
		if result.status == metav1.ConditionFalse {
			kind = corev1.EventTypeWarning
		}

		r.events.Eventf(s.Object, nil, kind, result.reason, "Validate", "%s", statustext.Cut(text, statustext.MaxEvent))
		log.FromContext(ctx).Info("store changed", "ready", result.status, "reason", result.reason, "message", text)
	}

	if err := r.client.Status().Patch(ctx, s.Object, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of %s: %w", s.Key(), err)
	}

	record.written.Expect(s.Object.GetResourceVersion(), time.Now())

	return nil
}
