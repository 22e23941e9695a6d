package document

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/external-secrets/eso/sdk/provider"
)

// Document is a secret as the backend holds it.
type Document struct {
	// Raw value. Properties and keys exist only where it is a JSON text.
	Raw []byte
	// Revision of the value, opaque; may be empty.
	Revision string
}

// Fetch reads one secret from the backend. An empty version is the latest.
type Fetch func(ctx context.Context, key, version string, metadata bool) (Document, error)

// maxFetches bounds the reads of one batch that are in flight.
const maxFetches = 8

// source is what one Fetch reads.
type source struct {
	key, version string
	metadata     bool
}

// fetched is what became of it.
type fetched struct {
	document Document
	err      error
}

// Read answers a batch with one Fetch per key, version and metadata flag,
// however many properties of it are asked for, and several at a time.
func Read(ctx context.Context, reads []provider.Read, fetch Fetch) []provider.Result {
	sources := map[source]*fetched{}
	for _, read := range reads {
		sources[source{read.Key, read.Version, read.Metadata}] = &fetched{}
	}

	var wait sync.WaitGroup

	free := make(chan struct{}, maxFetches)

	for from, into := range sources {
		free <- struct{}{}

		wait.Go(func() {
			defer func() { <-free }()

			into.document, into.err = guarded(ctx, from, fetch)
		})
	}

	wait.Wait()

	results := make([]provider.Result, len(reads))

	for i, read := range reads {
		got := sources[source{read.Key, read.Version, read.Metadata}]
		if got.err != nil {
			results[i] = provider.Result{Err: got.err}

			continue
		}

		results[i] = Answer(read, got.document)
	}

	return results
}

// guarded keeps a panic in one read, which no server sees in this goroutine,
// from ending the process. Its text may hold what was read.
func guarded(ctx context.Context, from source, fetch Fetch) (d Document, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the provider has a defect: a read panicked with a %T", panicked)
		}
	}()

	return fetch(ctx, from.key, from.version, from.metadata)
}

// Answer answers one read out of a document.
func Answer(read provider.Read, d Document) provider.Result {
	if d.Revision != "" && d.Revision == read.KnownRevision {
		return provider.Result{NotModified: true, Revision: d.Revision}
	}

	result := provider.Result{Revision: d.Revision}

	switch read.Shape {
	case provider.Map:
		result.Map, result.Err = Map(read.Key, d.Raw, read.Property)
	case provider.Value:
		result.Value, result.Err = Select(read.Key, d.Raw, read.Property)
	}

	return result
}

// Select gives the whole value where property is empty, else what the property
// leads to: a key of that very name, or a path in the syntax of gjson. Strings
// come without quotes, anything else as it stands in the JSON text. The key of
// the secret is for error messages.
func Select(key string, raw []byte, property string) ([]byte, error) {
	if property == "" {
		return raw, nil
	}

	found, err := lookup(key, raw, property)
	if err != nil {
		return nil, err
	}

	return text(found), nil
}

// Map gives the keys of a JSON object with their values: that which the
// property leads to, or the whole value.
func Map(key string, raw []byte, property string) (map[string][]byte, error) {
	object := gjson.ParseBytes(raw)

	if property == "" {
		if !gjson.ValidBytes(raw) {
			return nil, provider.InvalidRequest("cannot extract the keys of secret %q: its value is not JSON", key)
		}
	} else {
		found, err := lookup(key, raw, property)
		if err != nil {
			return nil, err
		}

		// A property may hold a JSON text as a string.
		if found.Type == gjson.String && gjson.Valid(found.Str) {
			found = gjson.Parse(found.Str)
		}

		object = found
	}

	if !object.IsObject() {
		return nil, provider.InvalidRequest("cannot extract the keys of secret %q: its value%s is not a JSON object", key, at(property))
	}

	values := map[string][]byte{}

	object.ForEach(func(name, value gjson.Result) bool {
		values[name.String()] = text(value)

		return true
	})

	return values, nil
}

func lookup(key string, raw []byte, property string) (gjson.Result, error) {
	if !gjson.ValidBytes(raw) {
		return gjson.Result{}, provider.InvalidRequest("cannot read property %q of secret %q: its value is not JSON", property, key)
	}

	document := gjson.ParseBytes(raw)

	// A key that holds a dot is meant before a path is.
	if document.IsObject() {
		var exact gjson.Result

		document.ForEach(func(name, value gjson.Result) bool {
			if name.String() == property {
				exact = value
			}

			return !exact.Exists()
		})

		if exact.Exists() {
			return exact, nil
		}
	}

	found := document.Get(property)
	if !found.Exists() {
		return found, provider.PropertyNotFound("secret %q has no property %q", key, property)
	}

	return found, nil
}

func text(value gjson.Result) []byte {
	if value.Type == gjson.String {
		return []byte(value.Str)
	}

	return []byte(value.Raw)
}

func at(property string) string {
	if property == "" {
		return ""
	}

	return " at property \"" + property + "\""
}
