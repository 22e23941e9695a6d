package resolver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/circuit"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/store"
)

// Resolver resolves references to SecretStores and ClusterSecretStores.
type Resolver struct {
	reader   client.Reader
	binder   *Binder
	pool     *providerclient.Pool
	class    string
	maxFound int
	circuits *circuit.Breakers[*store.Error]
}

const (
	// minOpen and maxOpen are the shortest and the longest time that the circuit
	// of a store stays open.
	minOpen = time.Second
	maxOpen = 20 * time.Second
	// capabilityWatch is the capability's name in a store's status.
	capabilityWatch = "Watch"
)

var (
	_ store.Resolver = (*Resolver)(nil)
	_ store.Client   = (*providerStore)(nil)
	_ store.Watcher  = (*providerStore)(nil)
)

// New returns a Resolver that reads stores from a cache, for an operator of a
// class. maxFound is the largest
// number of secrets that one find may return. recovered, which may be nil, is
// called when a store that failed answers again.
func New(reader client.Reader, binder *Binder, pool *providerclient.Pool, class string, maxFound int, recovered func(store.Selector)) *Resolver {
	closed := func(name string) {
		if recovered != nil {
			identity := strings.Split(name, "/")
			recovered(selectorOf(identity[0], identity[1], identity[2]))
		}
	}

	return &Resolver{
		reader: reader, binder: binder, pool: pool, class: class, maxFound: maxFound,
		circuits: circuit.New[*store.Error](minOpen, maxOpen, closed),
	}
}

// Resolve reads the store once and binds it once, from caches.
func (r *Resolver) Resolve(ctx context.Context, reference store.Reference, namespace string) (store.Snapshot, error) {
	s, err := Get(ctx, r.reader, keyOf(reference, namespace), client.UnsafeDisableDeepCopy)

	if _, denied := errors.AsType[*store.DenialError](err); denied {
		return store.Snapshot{Gate: err}, nil
	}

	if err != nil {
		return store.Snapshot{}, err
	}

	snapshot := store.Snapshot{
		Class:    s.Spec.Controller,
		Revision: string(s.Object.GetUID()) + "/" + s.Status.Revision,
		Healthy:  s.Healthy(),
	}

	// Another operator binds it: this one may lack the rights to.
	if snapshot.Class != "" && snapshot.Class != r.class {
		snapshot.Gate = &store.DenialError{Reason: v2alpha1.ReasonInvalidProviderConfig, Message: fmt.Sprintf("%s is for operators of class %q", s.Key(), snapshot.Class)}

		return snapshot, nil
	}

	if snapshot.Gate = r.binder.Admit(ctx, s, namespace); snapshot.Gate != nil {
		if _, denied := errors.AsType[*store.DenialError](snapshot.Gate); denied {
			snapshot.Revision += "/denied"
		}

		return snapshot, nil
	}

	if snapshot.Gate = s.Gated(); snapshot.Gate != nil {
		return snapshot, nil //nolint:nilerr // a gate is part of the snapshot
	}

	bound, err := r.binder.Bind(ctx, s)
	if err != nil {
		snapshot.Gate = err

		return snapshot, nil //nolint:nilerr // a gate is part of the snapshot
	}

	opened := r.open(s, bound, namespace)
	snapshot.Client, snapshot.Identity = opened, opened.identity
	snapshot.Flow = store.Flow{Provider: bound.Endpoint.Address.String(), Store: opened.circuit}

	if slices.Contains(s.Status.Capabilities, capabilityWatch) {
		snapshot.Watcher = opened
	}

	return snapshot, nil
}

func (r *Resolver) open(s *Store, bound *Binding, namespace string) *providerStore {
	authentication := bound.Call(namespace).GetAuthenticationNamespace()

	return &providerStore{
		resolver: r, bound: bound, namespace: namespace,
		// The first three name the store: see New. With Since, a store that
		// becomes Ready again has a closed circuit.
		circuit: strings.Join([]string{
			s.Kind, s.Object.GetNamespace(), s.Object.GetName(), authentication, bound.Revision, s.Since(),
		}, "/"),
		identity: strings.Join([]string{bound.Revision, authentication, namespace, bound.Endpoint.Address.String()}, "/"),
	}
}

func keyOf(reference store.Reference, namespace string) Key {
	key := Key{Kind: reference.Kind, Namespace: namespace, Name: reference.Name}
	if reference.Kind == v2alpha1.ClusterSecretStoreKind {
		key.Namespace = ""
	}

	return key
}

// selectorOf selects what refers to a store. An empty namespace is that of a
// ClusterSecretStore.
func selectorOf(kind, namespace, name string) store.Selector {
	return store.Selector{
		Reference: store.Reference{APIVersion: v2alpha1.GroupVersion.String(), Kind: kind, Name: name},
		Namespace: namespace,
	}
}

// providerStore is a store that is read through its provider.
type providerStore struct {
	resolver  *Resolver
	bound     *Binding
	namespace string
	circuit   string
	identity  string
}

// client returns the provider's client. Connections count as unused until a call
// is made: a Snapshot alone keeps none open.
func (p *providerStore) client() (*providerclient.Client, error) {
	return p.resolver.pool.Client(p.bound.Endpoint, p.bound.Caller)
}

// Read performs reads by calls of the provider.
func (p *providerStore) Read(ctx context.Context, reads []store.Read, revisions []string) ([]store.Result, error) {
	c, err := p.client()
	if err != nil {
		return nil, err
	}

	wire := make([]providerclient.Read, 0, len(reads))
	for i, read := range reads {
		wire = append(wire, providerclient.Read{Read: read, KnownRevision: revisions[i]})
	}

	var results []store.Result

	err = p.guarded(func() (err error) {
		if results, err = c.Read(ctx, p.bound.Call(p.namespace), wire); err != nil {
			return err
		}

		return refusal(results)
	})

	return results, err
}

// refusal is the error of a batch whose reads all failed with Unauthenticated:
// that concerns the whole store, whatever scope the provider reports.
func refusal(results []store.Result) error {
	for _, result := range results {
		if result.Err == nil || result.Err.Code != codes.Unauthenticated {
			return nil
		}
	}

	if len(results) == 0 {
		return nil
	}

	err := *results[0].Err
	err.Item = false

	return &err
}

// Find searches by a call of the provider.
func (p *providerStore) Find(ctx context.Context, find store.Find) (found map[string][]byte, err error) {
	c, err := p.client()
	if err != nil {
		return nil, err
	}

	err = p.guarded(func() (err error) {
		found, err = c.Find(ctx, p.bound.Call(p.namespace), find, p.resolver.maxFound)

		return err
	})

	return found, err
}

// guarded performs a call unless the store's circuit is open.
func (p *providerStore) guarded(call func() error) (err error) {
	done, last, after := p.resolver.circuits.Allow(p.circuit)
	if done == nil {
		failed := *last
		failed.RetryAfter = max(failed.RetryAfter, after)

		return &failed
	}

	verdict, failure := circuit.Suspect, &store.Error{Code: codes.Internal, Message: "the call did not end"}
	defer func() { done(verdict, failure) }()

	err = call()

	typed, ok := errors.AsType[*store.Error](err)

	switch {
	case err == nil, ok && typed.Item:
		verdict = circuit.Success
	case ok:
		verdict, failure = verdictOn(typed), typed
	default:
		failure = &store.Error{Code: codes.Internal, Message: err.Error()}
	}

	return err
}

// verdictOn returns what a failure of the whole store means for other calls
// through it. Several namespaces share a store, and what one of them reads must
// not lock out the others: only what does not depend on that opens the circuit.
// A config that is wrong for all makes the store not Ready, and then it is not
// called at all.
func verdictOn(err *store.Error) circuit.Verdict {
	switch err.Code {
	case codes.Unauthenticated:
		return circuit.Certain
	case codes.ResourceExhausted:
		if err.Reason == pb.ReasonThrottled {
			return circuit.Certain
		}

		return circuit.Neutral // one answer that is too large
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unknown, codes.Internal:
		return circuit.Suspect // it may be transient
	default:
		return circuit.Neutral
	}
}

// Name is the store as it is bound, and the namespace that it authenticates in.
func (p *providerStore) Name() string {
	call := p.bound.Call(p.namespace)

	return strings.Join([]string{
		call.GetStore().GetKind(), call.GetStore().GetNamespace(), call.GetStore().GetName(), call.GetStore().GetUid(),
		p.bound.Revision, call.GetAuthenticationNamespace(), p.bound.Endpoint.Address.String(),
	}, "/")
}

// Watch calls the provider. The call is long-lived, so it does not count against
// the provider's limits of concurrency.
func (p *providerStore) Watch(ctx context.Context, report func(store.Event) error) error {
	c, err := p.client()
	if err != nil {
		return err
	}

	return c.Watch(ctx, p.bound.Call(p.namespace), report)
}
