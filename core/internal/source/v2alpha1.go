package source

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/binding"
	"github.com/external-secrets/eso/core/internal/plan"
	"github.com/external-secrets/eso/core/internal/providerclient"
)

// V2Alpha1 opens SecretStores and ClusterSecretStores of
// secretstore.external-secrets.io/v2alpha1.
type V2Alpha1 struct {
	reader   client.Reader
	resolver *binding.Resolver
	pool     *providerclient.Pool
}

var _ Opener = (*V2Alpha1)(nil)

// NewV2Alpha1 makes an Opener that reads stores from a cache.
func NewV2Alpha1(reader client.Reader, resolver *binding.Resolver, pool *providerclient.Pool) *V2Alpha1 {
	return &V2Alpha1{reader: reader, resolver: resolver, pool: pool}
}

// Revision is what the store's controller last bound the store to.
func (v *V2Alpha1) Revision(ctx context.Context, store plan.Store, namespace string) (string, error) {
	s, err := binding.Get(ctx, v.reader, keyOf(store, namespace))

	var denial *binding.DenialError

	switch {
	case errors.As(err, &denial):
		return "", nil
	case err != nil:
		return "", err
	default:
		return string(s.Object.GetUID()) + "/" + s.Status.Revision, nil
	}
}

// Open binds the store, after its conditions and its gate.
func (v *V2Alpha1) Open(ctx context.Context, store plan.Store, namespace string) (Source, error) {
	s, err := binding.Get(ctx, v.reader, keyOf(store, namespace))
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

	client, err := v.pool.Client(bound.Endpoint)
	if err != nil {
		return nil, err
	}

	return &boundSource{client: client, bound: bound, namespace: namespace}, nil
}

func keyOf(store plan.Store, namespace string) binding.Key {
	key := binding.Key{Kind: store.Kind, Namespace: namespace, Name: store.Name}
	if store.Kind == v2alpha1.ClusterSecretStoreKind {
		key.Namespace = ""
	}

	return key
}

// boundSource reads through a provider.
type boundSource struct {
	client    *providerclient.Client
	bound     *binding.Binding
	namespace string
}

// Read asks the provider.
func (b *boundSource) Read(ctx context.Context, reads []plan.Read) ([]Result, error) {
	wire := make([]providerclient.Read, 0, len(reads))
	for _, read := range reads {
		wire = append(wire, providerclient.Read{Map: read.Map, Key: read.Key, Property: read.Property, Version: read.Version, Metadata: read.Metadata})
	}

	answers, err := b.client.Read(ctx, b.bound.Call(b.namespace), wire)
	if err != nil {
		return nil, err
	}

	results := make([]Result, 0, len(answers))
	for _, answer := range answers {
		results = append(results, Result(answer))
	}

	return results, nil
}
