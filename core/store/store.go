package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Reference names a store as an object's spec does, with defaults applied.
type Reference struct{ APIVersion, Kind, Name string }

// String returns the kind and the name, for messages.
func (r Reference) String() string { return fmt.Sprintf("%s %q", r.Kind, r.Name) }

// Resolver resolves references to stores of one apiVersion. Its methods may be
// called concurrently.
type Resolver interface {
	// Resolve returns the state of a store as far as objects of a namespace are
	// concerned. It is called once per sync and reads caches only.
	//
	// A store that does not exist, or must not be read, is no error: Gate of the
	// Snapshot says why. An error means that the state is not known; the caller
	// tries again.
	Resolve(ctx context.Context, reference Reference, namespace string) (Snapshot, error)

	// Dependencies returns the kinds of objects that Resolve depends on. The
	// engine watches them and syncs again what a change concerns. It is called
	// once, when the operator starts.
	Dependencies() []Dependency
}

// Dependency is a kind of object that a Resolver depends on.
type Dependency struct {
	// Object of the kind to watch: a pointer to a registered type, or a
	// *metav1.PartialObjectMetadata for metadata alone.
	Object client.Object
	// Predicates that an event has to pass; none lets every event pass.
	Predicates []predicate.Predicate
	// Selectors returns what a change of an object concerns. It must not change
	// the object, which belongs to the cache.
	Selectors func(object client.Object) []Selector
}

// Selector selects objects by the stores that they refer to.
type Selector struct {
	// Reference to the store. An empty Name selects any of the kind; Namespace
	// must not be empty then.
	Reference Reference
	// Namespace of the objects; empty selects those of all namespaces.
	Namespace string
}

// Snapshot is the state of a store when it was resolved.
type Snapshot struct {
	// Class of the operator that serves the store; empty means any. An operator
	// of another class leaves objects alone that refer to the store.
	Class string
	// Revision changes whenever what the store returns may have changed for
	// reasons outside of the backend, such as another spec. Empty for a store
	// that does not exist.
	Revision string
	// Identity says who reads what: identical reads through snapshots of one
	// Identity return the same. Empty means that reads are never shared.
	Identity string
	// Gate is why the store must not be read now; nil where it may be read. A
	// *DenialError ends only with a change of an object; after any other error
	// the read is tried again.
	Gate error
	// Healthy means that the store was validated successfully. Only then does an
	// answer that a secret does not exist prove it.
	Healthy bool
	// Flow is what limits of concurrency apply to.
	Flow Flow
	// Client reads the store; nil where Gate is set.
	Client Client
	// Watcher reports changes of the store's secrets; nil where the store
	// reports none.
	Watcher Watcher
}

// Client reads a store.
type Client interface {
	// Read performs reads and returns as many results in the same order; an
	// error is that of all of them. revisions has, per read, the Revision of the
	// result that the caller has kept, or "": a read whose result still has that
	// Revision may be answered with NotModified.
	Read(ctx context.Context, reads []Read, revisions []string) ([]Result, error)

	// Find returns every secret that matches, by name. The result is complete:
	// a part of it is an error.
	Find(ctx context.Context, find Find) (map[string][]byte, error)
}

// Watcher watches a store.
type Watcher interface {
	// Name identifies what is watched: Watchers of one Name report the same
	// changes, and only one of them is run.
	Name() string

	// Watch calls report with what changes until ctx ends, the watch ends or
	// report returns an error. It always returns an error. The first event has
	// Established set.
	Watch(ctx context.Context, report func(Event) error) error
}

// Event is what a Watcher reports.
type Event struct {
	// Established means that changes are reported from now on.
	Established bool
	// Keys of secrets that changed.
	Keys []string
	// Resync means that changes may have been missed.
	Resync bool
}

// Flow names what a read occupies. Reads of one Flow share limits of
// concurrency.
type Flow struct {
	// Provider that serves the store, such as the address of a process.
	Provider string
	// Store that is read.
	Store string
}

// Read is one read of a store. Equal reads return the same.
type Read struct {
	// Key, Property and Version of the secret.
	Key, Property, Version string
	// Map asks for every key of the secret; otherwise one value is read.
	Map bool
	// Metadata asks for the secret's metadata in place of its value.
	Metadata bool
}

// Find selects secrets of a store.
type Find struct {
	// Path to search below; nil means everywhere.
	Path *string
	// Name is an RE2 expression that a name must match; empty matches all.
	Name string
	// Tags that a secret must have.
	Tags map[string]string
}

// String describes the search, for messages.
func (f Find) String() string {
	var parts []string

	if f.Name != "" {
		parts = append(parts, fmt.Sprintf("name %q", f.Name))
	}

	if f.Path != nil {
		parts = append(parts, fmt.Sprintf("path %q", *f.Path))
	}

	if len(f.Tags) > 0 {
		parts = append(parts, fmt.Sprintf("tags %v", f.Tags))
	}

	return "find " + strings.Join(parts, ", ")
}

// Result is the result of one Read: an Err, or NotModified, or a Value or Map.
type Result struct {
	// Value of a read of a value.
	Value []byte
	// Map of a read of a map, and of a Find.
	Map map[string][]byte
	// NotModified means that the revision that the caller gave is current.
	NotModified bool
	// Revision of what was read; empty where the backend has none.
	Revision string
	// Err is why there is no value.
	Err *Error
}

// Resolvers are Resolvers by apiVersion.
type Resolvers map[string]Resolver

// Unserved returns the error of a reference whose apiVersion has no Resolver.
// field is the path of the reference in its object.
func (r Resolvers) Unserved(reference Reference, field string) error {
	served := make([]string, 0, len(r))
	for version := range r {
		served = append(served, version)
	}

	slices.Sort(served)

	return &UnservedError{Reference: reference, Field: field, Served: served}
}
