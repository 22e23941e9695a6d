// Package source is how a sync reaches a store, whatever kind of store it is:
// the reference's apiVersion chooses the Opener. A build that serves further
// apiVersions adds their Openers from outside.
package source

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// Opener opens the stores of one apiVersion.
type Opener interface {
	// Revision of a store: it changes whenever what the store gives may have
	// changed for reasons outside the backend. Empty for a store that does not
	// exist. It reads caches only.
	Revision(ctx context.Context, store plan.Store, namespace string) (string, error)

	// Class of the operator that serves a store; empty means any.
	Class(ctx context.Context, store plan.Store, namespace string) (string, error)

	// Open prepares a store for reads on behalf of a namespace. It reads
	// caches only; its error says why the store must not be used.
	Open(ctx context.Context, store plan.Store, namespace string) (Source, error)
}

// Source is an open store.
type Source interface {
	// Read performs reads and answers as many results in the same order; an
	// error is that of all of them. known holds the revision per read of what
	// the caller has, empty where it has nothing. What the store was asked before
	// since does not answer it; the zero time takes any answer that is under way.
	Read(ctx context.Context, reads []plan.Read, known []string, since time.Time) ([]Result, error)

	// Find gives every secret that matches, by name. It is whole, or an error.
	Find(ctx context.Context, find plan.Find) (map[string][]byte, error)

	// Healthy says that the store was well when it was opened. Only then does
	// its word that a secret is absent prove it.
	Healthy() bool

	// Lane says whom reads keep busy.
	Lane() Lane
}

// Watchers is an Opener whose stores may tell of changes.
type Watchers interface {
	// Watcher gives a store that tells of changes; nil where it does not. It
	// reads caches only, and little of them.
	Watcher(ctx context.Context, store plan.Store, namespace string) (Watcher, error)
}

// Watcher is a store that tells of changes.
type Watcher interface {
	// Watched names what the watch tells of: Watchers of one name tell the same.
	Watched() string

	// Watch calls tell with what changes until ctx or the watch ends; it always
	// ends with an error. Its first call says that the watch stands.
	Watch(ctx context.Context, tell func(Notice) error) error
}

// Notice is what a watch tells.
type Notice struct {
	// Stands says that changes are told of from now on.
	Stands bool
	// Keys of secrets that changed.
	Keys []string
	// Resync says that changes may have been missed.
	Resync bool
}

// Lane is what a read keeps busy.
type Lane struct {
	// Provider that serves the store.
	Provider string
	// Store that is read.
	Store string
}

// Result answers one read: an Err, or NotModified, or what the read asked for.
type Result struct {
	// Value answers a read of a value.
	Value []byte
	// Map answers a read of a map, and a find.
	Map map[string][]byte
	// NotModified says that the revision that the caller has is the current
	// one.
	NotModified bool
	// Revision of what was read; empty where the backend has none.
	Revision string
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
