// Package source is how a sync reaches a store, whatever kind of store it is:
// the reference's apiVersion chooses the Opener. A build that serves further
// apiVersions adds their Openers from outside.
package source

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/external-secrets/eso/core/internal/plan"
	"github.com/external-secrets/eso/core/internal/providerclient"
)

// Opener opens the stores of one apiVersion.
type Opener interface {
	// Revision of a store: it changes whenever what the store gives may have
	// changed for reasons outside the backend. Empty for a store that does not
	// exist. It reads caches only.
	Revision(ctx context.Context, store plan.Store, namespace string) (string, error)

	// Open prepares a store for reads on behalf of a namespace. It reads
	// caches only; its error says why the store must not be used.
	Open(ctx context.Context, store plan.Store, namespace string) (Source, error)
}

// Source is an open store.
type Source interface {
	// Read performs reads and answers as many results in the same order; an
	// error is that of all of them.
	Read(ctx context.Context, reads []plan.Read) ([]Result, error)
}

// Result answers one read: an Err, or what the read asked for.
type Result struct {
	// Value answers a read of a value.
	Value []byte
	// Map answers a read of a map.
	Map map[string][]byte
	// Err says why there is neither.
	Err *providerclient.Error
}

// Registry holds the Openers by apiVersion.
type Registry map[string]Opener

// Opener for a store. An apiVersion that this build does not serve is an error
// that names the field and the value to set.
func (r Registry) Opener(store plan.Store, field string) (Opener, error) {
	if opener, ok := r[store.APIVersion]; ok {
		return opener, nil
	}

	served := make([]string, 0, len(r))
	for version := range r {
		served = append(served, version)
	}

	slices.Sort(served)

	return nil, &UnservedError{Store: store, Field: field, Served: served}
}

// UnservedError says that a store's apiVersion is not served by this build.
type UnservedError struct {
	Store  plan.Store
	Field  string
	Served []string
}

// Error names the field and the values that it may have.
func (e *UnservedError) Error() string {
	return fmt.Sprintf("%s.apiVersion: this build serves no store of %s, which an absent value means too: set it to %s",
		e.Field, e.Store.APIVersion, strings.Join(e.Served, " or "))
}
