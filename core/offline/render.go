package offline

import (
	"context"
	"fmt"
	"time"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/sync/fetch"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
	"github.com/external-secrets/eso/core/internal/template"
	"github.com/external-secrets/eso/core/store"
)

// The results of Render.
type (
	// Target is what the target should be.
	Target = render.Target
	// Action is what is done with a target.
	Action = render.Action
	// Objects are the contents of the objects that templates are read from.
	Objects = render.Objects
)

// Actions on a target.
const (
	Written  = render.Written
	Deleted  = render.Deleted
	Retained = render.Retained
)

// Stores replace those of a cluster.
type Stores interface {
	// Open gives a store's contents; an error says why it has none.
	Open(store Store, namespace string) (Contents, error)
}

// Contents of a store. Errors are gRPC statuses as the provider protocol has
// them: what is proven absent has the reason NOT_FOUND.
type Contents interface {
	// Value of a read that asks for no map.
	Value(ctx context.Context, read Read) ([]byte, error)
	// Map of a read that asks for one.
	Map(ctx context.Context, read Read) (map[string][]byte, error)
	// Find gives every secret that matches, by name.
	Find(ctx context.Context, find Find) (map[string][]byte, error)
}

// Options of a rendering.
type Options struct {
	// LeftDelimiter and RightDelimiter of templates; empty means {{ and }}.
	LeftDelimiter, RightDelimiter string
}

// Render renders the target of an ExternalSecret as the operator does, out of
// what the given stores hold. Stores of every apiVersion are asked.
func Render(ctx context.Context, es *esv1.ExternalSecret, stores Stores, objects Objects, options Options) (*Target, error) {
	p, err := plan.New(es, nil)
	if err != nil {
		return nil, err
	}

	resolvers, references := store.Resolvers{}, make([]store.Reference, 0, len(p.Batches))
	fields := map[store.Reference]string{}

	for _, batch := range p.Batches {
		resolvers[batch.Store.APIVersion] = given{stores, fields}
		fields[batch.Store] = batch.Field
		references = append(references, batch.Store)
	}

	fetcher := fetch.New(resolvers, nil)

	resolved, err := fetcher.Resolve(ctx, references, es.Namespace)
	if err != nil {
		return nil, err
	}

	values, _, err := fetcher.Open(p, resolved, es.Namespace).Fetch(ctx, nil, time.Time{})
	if err != nil {
		return nil, err
	}

	renderer := render.New(
		template.New(template.Options{Left: options.LeftDelimiter, Right: options.RightDelimiter}),
		template.New(template.Options{}),
	)

	return renderer.Render(es, p, values, objects)
}

// given resolves references to the given stores.
type given struct {
	stores Stores
	// fields of the references.
	fields map[store.Reference]string
}

var _ store.Resolver = given{}

func (r given) Resolve(_ context.Context, reference store.Reference, namespace string) (store.Snapshot, error) {
	contents, err := r.stores.Open(reference, namespace)
	if err != nil {
		return store.Snapshot{Gate: fmt.Errorf("%s: %w", r.fields[reference], err)}, nil
	}

	return store.Snapshot{Healthy: true, Client: opened{contents}}, nil
}

func (given) Dependencies() []store.Dependency { return nil }

// opened reads the contents of a given store.
type opened struct{ contents Contents }

var _ store.Client = opened{}

func (o opened) Read(ctx context.Context, reads []store.Read, _ []string) ([]store.Result, error) {
	results := make([]store.Result, len(reads))

	for i, read := range reads {
		var err error

		if read.Map {
			results[i].Map, err = o.contents.Map(ctx, read)
		} else {
			results[i].Value, err = o.contents.Value(ctx, read)
		}

		if err != nil {
			results[i] = store.Result{Err: providerclient.FromStatus(err)}
		}
	}

	return results, nil
}

func (o opened) Find(ctx context.Context, find store.Find) (map[string][]byte, error) {
	found, err := o.contents.Find(ctx, find)
	if err != nil {
		return nil, providerclient.FromStatus(err)
	}

	return found, nil
}
