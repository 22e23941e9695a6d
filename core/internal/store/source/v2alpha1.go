package source

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/circuit"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// V2Alpha1 opens SecretStores and ClusterSecretStores of
// secretstore.external-secrets.io/v2alpha1.
type V2Alpha1 struct {
	reader   client.Reader
	resolver *resolver.Resolver
	pool     *providerclient.Pool
	maxFound int
	flights  *flights
	circuits *circuit.Breakers[*providerclient.Error]
}

const (
	// shortestBreak and longestBreak are how long a store that refuses
	// everything is left alone.
	shortestBreak = time.Second
	longestBreak  = 20 * time.Second
	// capabilityWatch is what a store's status calls the capability.
	capabilityWatch = "Watch"
)

var (
	_ Opener   = (*V2Alpha1)(nil)
	_ Watchers = (*V2Alpha1)(nil)
	_ Watcher  = (*boundSource)(nil)
)

// NewV2Alpha1 makes an Opener that reads stores from a cache. maxFound is the
// largest number of secrets that one find may answer. recovered, which may be
// nil, is called with a store that failed and answers again; its namespace is
// empty for a ClusterSecretStore.
func NewV2Alpha1(reader client.Reader, resolver *resolver.Resolver, pool *providerclient.Pool, maxFound int, recovered func(kind, namespace, name string)) *V2Alpha1 {
	closed := func(name string) {
		if recovered != nil {
			identity := strings.Split(name, "/")
			recovered(identity[0], identity[1], identity[2])
		}
	}

	return &V2Alpha1{
		reader: reader, resolver: resolver, pool: pool, maxFound: maxFound,
		flights: newFlights(), circuits: circuit.New[*providerclient.Error](shortestBreak, longestBreak, closed),
	}
}

// Class is the store's spec.controller.
func (v *V2Alpha1) Class(ctx context.Context, store plan.Store, namespace string) (string, error) {
	s, err := resolver.Get(ctx, v.reader, keyOf(store, namespace))

	if _, denied := errors.AsType[*resolver.DenialError](err); denied {
		return "", nil
	}

	if err != nil {
		return "", err
	}

	return s.Spec.Controller, nil
}

// Revision is what the store's controller last bound the store to, and whether
// it serves the namespace.
func (v *V2Alpha1) Revision(ctx context.Context, store plan.Store, namespace string) (string, error) {
	s, err := resolver.Get(ctx, v.reader, keyOf(store, namespace))

	var denial *resolver.DenialError

	switch {
	case errors.As(err, &denial):
		return "", nil
	case err != nil:
		return "", err
	}

	revision := string(s.Object.GetUID()) + "/" + s.Status.Revision

	if err := v.resolver.Admit(ctx, s, namespace); errors.As(err, &denial) {
		revision += "/denied"
	} else if err != nil {
		return "", err
	}

	return revision, nil
}

// Open binds the store, after its conditions and its gate.
func (v *V2Alpha1) Open(ctx context.Context, store plan.Store, namespace string) (Source, error) {
	s, err := resolver.Get(ctx, v.reader, keyOf(store, namespace))
	if err != nil {
		return nil, err
	}

	if err := v.resolver.Admit(ctx, s, namespace); err != nil {
		return nil, err
	}

	if err := s.Gated(); err != nil {
		return nil, err
	}

	bound, err := v.resolver.Bind(ctx, s)
	if err != nil {
		return nil, err
	}

	client, err := v.pool.Client(bound.Endpoint, bound.Caller)
	if err != nil {
		return nil, err
	}

	call := bound.Call(namespace)

	return &boundSource{
		v: v, client: client, bound: bound, namespace: namespace, healthy: s.Healthy(),
		// Kind, namespace and name come first: recovered reads them.
		// What makes the store Ready again closes the circuit, too.
		circuit: strings.Join([]string{
			s.Kind, s.Object.GetNamespace(), s.Object.GetName(), call.GetAuthenticationNamespace(), bound.Revision, s.Since(),
		}, "/"),
		identity: strings.Join([]string{bound.Revision, call.GetAuthenticationNamespace(), namespace, bound.Endpoint.Address.String()}, "/"),
	}, nil
}

// Watcher opens a store whose provider claims to tell of changes.
func (v *V2Alpha1) Watcher(ctx context.Context, store plan.Store, namespace string) (Watcher, error) {
	s, err := resolver.Get(ctx, v.reader, keyOf(store, namespace))
	if err != nil {
		return nil, err
	}

	if !slices.Contains(s.Status.Capabilities, capabilityWatch) {
		return nil, nil //nolint:nilnil // it does not
	}

	opened, err := v.Open(ctx, store, namespace)
	if err != nil {
		return nil, err
	}

	watcher, _ := opened.(*boundSource)

	return watcher, nil
}

func keyOf(store plan.Store, namespace string) resolver.Key {
	key := resolver.Key{Kind: store.Kind, Namespace: namespace, Name: store.Name}
	if store.Kind == v2alpha1.ClusterSecretStoreKind {
		key.Namespace = ""
	}

	return key
}

// boundSource reads through a provider.
type boundSource struct {
	v         *V2Alpha1
	client    *providerclient.Client
	bound     *resolver.Binding
	namespace string
	healthy   bool
	circuit   string
	identity  string
}

// Read asks the provider, unless somebody else is asking it for the same.
func (b *boundSource) Read(ctx context.Context, reads []plan.Read, known []string, since time.Time) ([]Result, error) {
	return b.v.flights.read(ctx, b.identity, reads, known, since, b.read)
}

func (b *boundSource) read(ctx context.Context, reads []plan.Read, known []string) ([]Result, error) {
	wire := make([]providerclient.Read, 0, len(reads))
	for i, read := range reads {
		wire = append(wire, providerclient.Read{
			Map: read.Map, Key: read.Key, Property: read.Property, Version: read.Version, Metadata: read.Metadata, KnownRevision: known[i],
		})
	}

	var answers []providerclient.Result

	err := b.guarded(func() (err error) {
		if answers, err = b.client.Read(ctx, b.bound.Call(b.namespace), wire); err != nil {
			return err
		}

		return refusal(answers)
	})
	if err != nil {
		return nil, err
	}

	results := make([]Result, 0, len(answers))
	for _, answer := range answers {
		results = append(results, Result(answer))
	}

	return results, nil
}

// refusal is the error of a batch of which every read was refused for the
// credentials' sake: that concerns the store, whatever the provider says.
func refusal(answers []providerclient.Result) error {
	for _, answer := range answers {
		if answer.Err == nil || answer.Err.Code != codes.Unauthenticated {
			return nil
		}
	}

	if len(answers) == 0 {
		return nil
	}

	err := *answers[0].Err
	err.Item = false

	return &err
}

// Find asks the provider.
func (b *boundSource) Find(ctx context.Context, find plan.Find) (found map[string][]byte, err error) {
	err = b.guarded(func() (err error) {
		found, err = b.client.Find(ctx, b.bound.Call(b.namespace), providerclient.Find{Path: find.Path, Name: find.Name, Tags: find.Tags, Max: b.v.maxFound})

		return err
	})

	return found, err
}

// guarded makes a call, unless the store has just refused everything.
func (b *boundSource) guarded(call func() error) (err error) {
	done, last, after := b.v.circuits.Allow(b.circuit)
	if done == nil {
		failed := *last
		failed.RetryAfter = max(failed.RetryAfter, after)

		return &failed
	}

	verdict, failure := circuit.Suspect, &providerclient.Error{Code: codes.Internal, Message: "the call did not end"}
	defer func() { done(verdict, failure) }()

	err = call()

	typed, ok := errors.AsType[*providerclient.Error](err)

	switch {
	case err == nil, ok && typed.Item:
		verdict = circuit.Success
	case ok:
		verdict, failure = verdictOn(typed), typed
	default:
		failure = &providerclient.Error{Code: codes.Internal, Message: err.Error()}
	}

	return err
}

// verdictOn tells what a failure of the whole store says about other calls
// through it. Several namespaces share a store, and what one of them asks for
// must not keep the others from it: only what does not depend on that opens the
// circuit. A config that is wrong for all makes the store not Ready, and then it
// is not asked at all.
func verdictOn(err *providerclient.Error) circuit.Verdict {
	switch err.Code {
	case codes.Unauthenticated:
		return circuit.Certain
	case codes.ResourceExhausted:
		if err.Reason == pb.ReasonThrottled {
			return circuit.Certain
		}

		return circuit.Neutral // one answer that is too large
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unknown, codes.Internal:
		return circuit.Suspect // it may pass by itself
	default:
		return circuit.Neutral
	}
}

// Watched is the store as it is bound, and where it authenticates.
func (b *boundSource) Watched() string {
	call := b.bound.Call(b.namespace)

	return strings.Join([]string{
		call.GetStore().GetKind(), call.GetStore().GetNamespace(), call.GetStore().GetName(), call.GetStore().GetUid(),
		b.bound.Revision, call.GetAuthenticationNamespace(), b.bound.Endpoint.Address.String(),
	}, "/")
}

// Watch asks the provider. It is a call that lasts: it takes no place among
// those that are limited.
func (b *boundSource) Watch(ctx context.Context, tell func(Notice) error) error {
	return b.client.Watch(ctx, b.bound.Call(b.namespace), func(stands bool, keys []string, resync bool) error {
		return tell(Notice{Stands: stands, Keys: keys, Resync: resync})
	})
}

// Healthy tells what the store's condition said.
func (b *boundSource) Healthy() bool { return b.healthy }

// Lane names the provider by its endpoint.
func (b *boundSource) Lane() Lane {
	return Lane{Provider: b.bound.Endpoint.Address.String(), Store: b.circuit}
}
