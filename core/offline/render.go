package offline

import (
	"context"
	"fmt"
	"time"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/source"
	"github.com/external-secrets/eso/core/internal/sync/fetch"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
	"github.com/external-secrets/eso/core/internal/template"
)

// What becomes of a rendering.
type (
	// Target is what the target should be.
	Target = render.Target
	// Fate is what becomes of a target.
	Fate = render.Fate
	// Objects are the contents of the objects that templates are read from.
	Objects = render.Objects
)

// Fates of a target.
const (
	Written  = render.Written
	Deleted  = render.Deleted
	Retained = render.Retained
)

// Stores stand for those of a cluster.
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

// Render makes the target of an ExternalSecret as the operator does, out of
// what the given stores hold. Stores of every apiVersion are asked.
func Render(ctx context.Context, es *esv1.ExternalSecret, stores Stores, objects Objects, options Options) (*Target, error) {
	p, err := plan.New(es)
	if err != nil {
		return nil, err
	}

	openers, fields := source.Registry{}, map[plan.Store]string{}
	for _, batch := range p.Batches {
		openers[batch.Store.APIVersion] = opener{stores, fields}
		fields[batch.Store] = batch.Field
	}

	values, _, err := fetch.Open(ctx, openers, p, es.Namespace).Fetch(ctx, nil, time.Time{})
	if err != nil {
		return nil, err
	}

	renderer := render.New(
		template.New(template.Options{Left: options.LeftDelimiter, Right: options.RightDelimiter}),
		template.New(template.Options{}),
	)

	return renderer.Render(es, p, values, objects)
}

// opener makes given stores a source of the operator's.
type opener struct {
	stores Stores
	// fields that name the stores.
	fields map[plan.Store]string
}

var _ source.Opener = opener{}

func (opener) Revision(context.Context, plan.Store, string) (string, error) { return "", nil }

func (opener) Class(context.Context, plan.Store, string) (string, error) { return "", nil }

func (o opener) Open(_ context.Context, store plan.Store, namespace string) (source.Source, error) {
	contents, err := o.stores.Open(store, namespace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.fields[store], err)
	}

	return opened{contents}, nil
}

// opened is a store whose word is always taken.
type opened struct{ contents Contents }

var _ source.Source = opened{}

func (o opened) Read(ctx context.Context, reads []plan.Read, _ []string, _ time.Time) ([]source.Result, error) {
	results := make([]source.Result, len(reads))

	for i, read := range reads {
		var err error

		if read.Map {
			results[i].Map, err = o.contents.Map(ctx, read)
		} else {
			results[i].Value, err = o.contents.Value(ctx, read)
		}

		if err != nil {
			results[i] = source.Result{Err: providerclient.FromStatus(err)}
		}
	}

	return results, nil
}

func (o opened) Find(ctx context.Context, find plan.Find) (map[string][]byte, error) {
	found, err := o.contents.Find(ctx, find)
	if err != nil {
		return nil, providerclient.FromStatus(err)
	}

	return found, nil
}

func (opened) Healthy() bool { return true }

func (opened) Lane() source.Lane { return source.Lane{} }
