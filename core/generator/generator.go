// Package generator defines what a kind of generator is to the sync engine: a
// Resolver generates the values of dataFrom[].sourceRef.generatorRef for the
// kinds of one apiVersion.
//
// Generators are stateless: nothing is recorded about what was generated, and
// nothing is revoked. A kind whose values have to be revoked must not be served
// through this interface.
package generator

import (
	"context"
	"fmt"
)

// DefaultAPIVersion is what a reference without an apiVersion means.
const DefaultAPIVersion = "generators.external-secrets.io/v1alpha1"

// Reference names a generator as an object's spec does, with defaults applied.
type Reference struct{ APIVersion, Kind, Name string }

// String returns the kind and the name, for messages.
func (r Reference) String() string { return fmt.Sprintf("%s %q", r.Kind, r.Name) }

// Resolver generates values with the generators of one apiVersion. Its methods
// may be called concurrently.
type Resolver interface {
	// Generate returns new values of a generator for an object of a namespace,
	// by key. It is called once per sync and reference. The Resolver decides
	// whether the namespace may use the generator.
	//
	// A *store.Error or *store.DenialError is handled as that of a store. Errors
	// must not contain generated values.
	Generate(ctx context.Context, reference Reference, namespace string) (map[string][]byte, error)
}

// Resolvers are Resolvers by apiVersion.
type Resolvers map[string]Resolver

// Serves reports whether an apiVersion has a Resolver.
func (r Resolvers) Serves(apiVersion string) bool {
	_, ok := r[apiVersion]

	return ok
}
