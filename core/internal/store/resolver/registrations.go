package resolver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
)

// Indexes of SecretProviders in the cache.
const (
	indexServedKind = "status.kinds"
	indexAddress    = "spec.address"
)

// Registrations finds SecretProviders. What it returns must not be changed.
type Registrations interface {
	// Serving returns those whose status lists a kind of provider config.
	Serving(ctx context.Context, gvk schema.GroupVersionKind) ([]v2alpha1.SecretProvider, error)
	// At returns those with an address.
	At(ctx context.Context, a address.Address) ([]v2alpha1.SecretProvider, error)
}

// IndexRegistrations adds to a cache the indexes that IndexedRegistrations
// needs.
func IndexRegistrations(ctx context.Context, indexer client.FieldIndexer) error {
	for name, index := range map[string]client.IndexerFunc{indexServedKind: byServedKind, indexAddress: byAddress} {
		if err := indexer.IndexField(ctx, &v2alpha1.SecretProvider{}, name, index); err != nil {
			return fmt.Errorf("cannot index SecretProviders by %s: %w", name, err)
		}
	}

	return nil
}

func byServedKind(object client.Object) []string {
	registration, ok := object.(*v2alpha1.SecretProvider)
	if !ok {
		return nil
	}

	keys := make([]string, 0, len(registration.Status.Kinds))
	for _, kind := range registration.Status.Kinds {
		keys = append(keys, servedKind(kind.APIVersion, kind.Kind))
	}

	return keys
}

func byAddress(object client.Object) []string {
	registration, ok := object.(*v2alpha1.SecretProvider)
	if !ok {
		return nil
	}

	parsed, err := address.Parse(registration.Spec.Address)
	if err != nil {
		return nil
	}

	return []string{parsed.String()}
}

func servedKind(apiVersion, kind string) string { return apiVersion + "/" + kind }

// IndexedRegistrations are those of a cache with the indexes of
// IndexRegistrations: a look-up neither lists nor copies the others.
type IndexedRegistrations struct{ Reader client.Reader }

// Serving looks up by the kinds in the status.
func (r IndexedRegistrations) Serving(ctx context.Context, gvk schema.GroupVersionKind) ([]v2alpha1.SecretProvider, error) {
	apiVersion, kind := gvk.ToAPIVersionAndKind()

	return list(ctx, r.Reader, client.MatchingFields{indexServedKind: servedKind(apiVersion, kind)}, client.UnsafeDisableDeepCopy)
}

// At looks up by the address, in its canonical form.
func (r IndexedRegistrations) At(ctx context.Context, a address.Address) ([]v2alpha1.SecretProvider, error) {
	return list(ctx, r.Reader, client.MatchingFields{indexAddress: a.String()}, client.UnsafeDisableDeepCopy)
}

// ListedRegistrations are those of a reader without indexes, such as the API
// server: a look-up lists all.
type ListedRegistrations struct{ Reader client.Reader }

// Serving lists all: the caller selects by kind.
func (r ListedRegistrations) Serving(ctx context.Context, _ schema.GroupVersionKind) ([]v2alpha1.SecretProvider, error) {
	return list(ctx, r.Reader)
}

// At lists all: the caller selects by address.
func (r ListedRegistrations) At(ctx context.Context, _ address.Address) ([]v2alpha1.SecretProvider, error) {
	return list(ctx, r.Reader)
}

func list(ctx context.Context, reader client.Reader, options ...client.ListOption) ([]v2alpha1.SecretProvider, error) {
	var found v2alpha1.SecretProviderList
	if err := reader.List(ctx, &found, options...); err != nil {
		return nil, fmt.Errorf("cannot list SecretProviders: %w", err)
	}

	return found.Items, nil
}
