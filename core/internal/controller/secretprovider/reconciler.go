package secretprovider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/ca"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/internal/statustext"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/store"
)

const (
	// pollHealthy and pollUnhealthy are the pauses between two looks at a
	// provider (KEP-3299 has the same).
	pollHealthy   = time.Minute
	pollUnhealthy = 5 * time.Second
	// certificateRetry is the pause after a certificate could not be issued.
	certificateRetry = 5 * time.Second
)

// Reconciler keeps registrations.
type Reconciler struct {
	client       client.Client
	resolver     *resolver.Binder
	pool         *providerclient.Pool
	certificates certificates
	events       events.EventRecorder
	allowed      []providerclient.Endpoint
}

// New returns a reconciler. c reads from a cache, direct from the API server.
// Connections to the allowed endpoints are kept without a registration.
func New(
	c, direct client.Client, resolver *resolver.Binder, pool *providerclient.Pool, a *ca.Authority,
	recorder events.EventRecorder, allowed []providerclient.Endpoint,
) *Reconciler {
	return &Reconciler{
		client: c, resolver: resolver, pool: pool, events: recorder, allowed: allowed,
		certificates: certificates{client: direct, authority: a},
	}
}

// SetupWithManager registers the controller. Every registration is looked at
// again when the certificate authority changes.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, a *ca.Authority) error {
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var list v2alpha1.SecretProviderList
		// A cache that cannot be read has been stopped.
		if err := r.client.List(ctx, &list); err != nil {
			return nil
		}

		requests := make([]reconcile.Request, 0, len(list.Items))
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}

		return requests
	})

	err := builder.ControllerManagedBy(mgr).
		Named("secretprovider").
		For(&v2alpha1.SecretProvider{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(a.Changed(), all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("cannot set up the SecretProvider controller: %w", err)
	}

	return nil
}

// Reconcile looks at one registration.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.closeUnregistered(ctx)

	registration := &v2alpha1.SecretProvider{}
	if err := r.client.Get(ctx, request.NamespacedName, registration); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	if registration.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}

	before := registration.DeepCopy()

	endpoint, err := r.resolver.Endpoint(registration)
	if err != nil {
		condition := failed(v2alpha1.ReasonInvalidRegistration, err.Error())

		if denial, ok := errors.AsType[*store.DenialError](err); ok {
			condition.Reason = denial.Reason
		}

		return reconcile.Result{}, r.report(ctx, before, registration, condition)
	}

	var (
		renew    time.Duration
		unissued error
	)

	// Without an identity that the operator issues, another issuer does.
	if endpoint.Trust.Identity != "" {
		renew, unissued = r.certificates.ensure(ctx, registration, endpoint)
	}

	condition := r.look(ctx, registration, endpoint)
	if unissued != nil {
		condition = withoutRenewal(condition, unissued)
	}

	again := pollHealthy
	if condition.Status != metav1.ConditionTrue || condition.Reason != v2alpha1.ReasonServing {
		again = pollUnhealthy
	}

	if renew > 0 {
		again = min(again, renew)
	}

	if unissued != nil {
		again = certificateRetry
	}

	return reconcile.Result{RequeueAfter: again}, r.report(ctx, before, registration, condition)
}

// withoutRenewal is the condition of a provider whose certificate cannot be
// issued: one that has a good certificate serves on.
func withoutRenewal(condition metav1.Condition, unissued error) metav1.Condition {
	if condition.Status != metav1.ConditionTrue {
		return failed(v2alpha1.ReasonCertificateFailed, unissued.Error())
	}

	condition.Reason, condition.Message = v2alpha1.ReasonDegraded, "the provider serves, but its certificate cannot be renewed: "+unissued.Error()

	return condition
}

// look asks the provider what it is and whether it is well. It updates the
// registration's status but for the condition.
func (r *Reconciler) look(ctx context.Context, registration *v2alpha1.SecretProvider, endpoint providerclient.Endpoint) metav1.Condition {
	provider, err := r.pool.Client(endpoint, token.Identity{})
	if err != nil {
		return failed(v2alpha1.ReasonUnreachable, err.Error())
	}

	info, err := provider.Info(ctx)
	if err != nil {
		return failed(reasonOf(err), err.Error())
	}

	registration.Status.Name = bounded(info.GetName())
	registration.Status.Version = bounded(info.GetVersion())
	registration.Status.ProtocolVersions = nil

	defer func() { registration.Status.Summary = summary(&registration.Status) }()

	for _, version := range info.GetProtocolVersions()[:min(len(info.GetProtocolVersions()), 16)] {
		registration.Status.ProtocolVersions = append(registration.Status.ProtocolVersions, bounded(version))
	}

	if !slices.Contains(info.GetProtocolVersions(), pb.ProtocolVersion) {
		return failed(v2alpha1.ReasonUnsupportedProtocol, fmt.Sprintf(
			"provider %s %s speaks protocol %s, this operator %s: install a version of the provider, or of the operator, that share one",
			registration.Status.Name, registration.Status.Version, listed(registration.Status.ProtocolVersions), pb.ProtocolVersion))
	}

	registration.Status.Kinds = kinds(registration, info)

	status, err := provider.Status(ctx)
	if err != nil {
		return failed(reasonOf(err), err.Error())
	}

	condition := metav1.Condition{Status: metav1.ConditionTrue, Reason: v2alpha1.ReasonServing, Message: "the provider serves"}

	switch status.GetState() {
	case pb.GetStatusResponse_STATE_OK:
		return condition
	case pb.GetStatusResponse_STATE_DEGRADED:
		condition.Reason, condition.Message = v2alpha1.ReasonDegraded, status.GetReason()

		return condition
	case pb.GetStatusResponse_STATE_FAILING:
		return failed(v2alpha1.ReasonFailing, status.GetReason())
	default:
		return failed(v2alpha1.ReasonInvalidAnswer, fmt.Sprintf("the provider breaks the protocol: its status is %v", status.GetState()))
	}
}

// closeUnregistered closes connections that no registration has any
// more.
func (r *Reconciler) closeUnregistered(ctx context.Context) {
	var list v2alpha1.SecretProviderList
	if err := r.client.List(ctx, &list); err != nil {
		return
	}

	endpoints := slices.Clone(r.allowed)

	for i := range list.Items {
		if endpoint, err := r.resolver.Endpoint(&list.Items[i]); err == nil {
			endpoints = append(endpoints, endpoint)
		}
	}

	r.pool.Retain(endpoints)
}

func (r *Reconciler) report(ctx context.Context, before, registration *v2alpha1.SecretProvider, condition metav1.Condition) error {
	condition.Type = v2alpha1.ConditionReady
	condition.ObservedGeneration = registration.Generation
	condition.Message = statustext.Cut(condition.Message, statustext.MaxCondition)

	was := meta.FindStatusCondition(before.Status.Conditions, v2alpha1.ConditionReady)
	meta.SetStatusCondition(&registration.Status.Conditions, condition)

	if equality.Semantic.DeepEqual(before.Status, registration.Status) {
		return nil
	}

	if was == nil || was.Status != condition.Status || was.Reason != condition.Reason {
		kind := corev1.EventTypeNormal
		if condition.Status != metav1.ConditionTrue {
			kind = corev1.EventTypeWarning
		}

		r.events.Eventf(registration, nil, kind, condition.Reason, "Check", "%s", statustext.Cut(condition.Message, statustext.MaxEvent))
		log.FromContext(ctx).Info("provider changed", "ready", condition.Status, "reason", condition.Reason, "message", condition.Message)
	}

	if err := r.client.Status().Patch(ctx, registration, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot write the status of SecretProvider %q: %w", registration.Name, err)
	}

	return nil
}

// reasonOf a provider's failure to answer.
func reasonOf(err error) string {
	var typed *store.Error

	switch {
	case !errors.As(err, &typed):
		return v2alpha1.ReasonUnreachable
	case typed.Untrusted:
		return v2alpha1.ReasonUntrusted
	case typed.Breach:
		return v2alpha1.ReasonInvalidAnswer
	case typed.Unimplemented():
		return v2alpha1.ReasonUnsupportedProtocol
	default:
		return v2alpha1.ReasonUnreachable
	}
}

func failed(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// registered reports whether a registration lets its provider serve a kind.
func registered(registration *v2alpha1.SecretProvider, kind *pb.Kind) bool {
	return len(registration.Spec.Kinds) == 0 || slices.ContainsFunc(registration.Spec.Kinds, func(allowed v2alpha1.ProviderKind) bool {
		return allowed.Kind == kind.GetKind() && allowed.Version() == kind.GetApiVersion()
	})
}

func kinds(registration *v2alpha1.SecretProvider, info *pb.GetInfoResponse) []v2alpha1.ServedKind {
	served := make([]v2alpha1.ServedKind, 0, len(info.GetKinds()))

	for _, kind := range info.GetKinds() {
		if kind.GetService() != pb.Service_SERVICE_SECRET_STORE {
			continue
		}

		if !registered(registration, kind) {
			continue
		}

		entry := v2alpha1.ServedKind{APIVersion: kind.GetApiVersion(), Kind: kind.GetKind()}

		for _, capability := range kind.GetCapabilities() {
			if name := capabilityName(capability); name != "" && !slices.Contains(entry.Capabilities, name) {
				entry.Capabilities = append(entry.Capabilities, name)
			}
		}

		served = append(served, entry)
	}

	return served
}

// capabilityName is how a capability is shown to users; empty for one that
// this version does not know.
func capabilityName(capability pb.Capability) string {
	name, known := pb.Capability_name[int32(capability)]
	if !known || capability == pb.Capability_CAPABILITY_UNSPECIFIED {
		return ""
	}

	name = strings.ToLower(strings.TrimPrefix(name, "CAPABILITY_"))

	return strings.ToUpper(name[:1]) + name[1:]
}

// bounded keeps what a provider says of itself short.
func bounded(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), 128)], "")
}

func listed(versions []string) string {
	if len(versions) == 0 {
		return "(none)"
	}

	return strings.Join(versions, ", ")
}

// summary is what printer columns show of a status's lists.
func summary(status *v2alpha1.SecretProviderStatus) *v2alpha1.SecretProviderSummary {
	names := make([]string, 0, len(status.Kinds))
	for _, kind := range status.Kinds {
		names = append(names, kind.Kind)
	}

	return &v2alpha1.SecretProviderSummary{Protocols: strings.Join(status.ProtocolVersions, ","), Kinds: strings.Join(names, ",")}
}
