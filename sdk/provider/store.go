package provider

import (
	"context"
	"regexp"
)

// Store is one backend client, constructed from one provider config for one
// authentication namespace. Its methods are called concurrently, from its
// construction until Close, never after. The other interfaces that its type
// implements, such as Reader, are the kind's capabilities.
type Store interface {
	// Validate reports whether the config can work. It may call the backend. An
	// error of InvalidConfig, Unauthenticated or AccessDenied means that it cannot;
	// any other error means that this could not be determined.
	Validate(ctx context.Context) (Validation, error)

	// Close releases what the store holds, such as a login. It is called once.
	Close(ctx context.Context) error
}

// Reader is a Store that reads secrets.
type Reader interface {
	Store

	// Read performs a batch of reads and returns one result for each, in the same
	// order. A failure of all of them, such as a refused login, is the error of each
	// result, with StoreScope set: the batch then fails as a whole. A batch is never
	// empty.
	Read(ctx context.Context, reads []Read) []Result
}

// Finder is a Store that finds secrets by name and tags.
type Finder interface {
	Store

	// Find calls found with each secret that matches, once, in any order, and not
	// concurrently. An error of found ends the search, and Find returns it. When
	// Find returns nil, found was called for every secret that matches.
	Find(ctx context.Context, query Query, found func(Found) error) error
}

// Query selects secrets. An empty field matches all.
type Query struct {
	// Path below which secrets are searched, in the backend's own terms; nil means
	// everywhere.
	Path *string
	// Name that a secret's key must match; nil matches all.
	Name *regexp.Regexp
	// Tags that a secret must have.
	Tags map[string]string
}

// Matches reports whether a secret's key and tags match. Path is not compared: its
// meaning depends on the backend.
func (q Query) Matches(key string, tags map[string]string) bool {
	if q.Name != nil && !q.Name.MatchString(key) {
		return false
	}

	for name, value := range q.Tags {
		if has, ok := tags[name]; !ok || has != value {
			return false
		}
	}

	return true
}

// Found is a secret that Find has found.
type Found struct {
	// Key with which Read reads the secret; never empty.
	Key string
	// Value of the whole secret.
	Value []byte
}

// Shape of the result of a read.
type Shape int

const (
	// Value is one value.
	Value Shape = iota
	// Map is all keys of the secret with their values.
	Map
)

// Read asks for one secret, or a property of it.
type Read struct {
	// Shape of the result.
	Shape Shape
	// Key of the secret in the backend's own terms; never empty.
	Key string
	// Property of the secret; empty means the whole secret.
	Property string
	// Version of the secret; empty means the latest.
	Version string
	// Metadata requests the secret's metadata in place of its value.
	Metadata bool
	// KnownRevision is the revision that the caller has. If it is the current one,
	// the result may be NotModified. Empty means none.
	KnownRevision string
}

// Result of one Read: an Err, or NotModified, or a value of the requested shape.
type Result struct {
	// Value is the result of shape Value. It may be empty.
	Value []byte
	// Map is the result of shape Map. It may be empty.
	Map map[string][]byte
	// NotModified means that the caller's KnownRevision is the current one.
	NotModified bool
	// Revision is the opaque revision of the secret; empty where the backend has
	// none.
	Revision string
	// Err is why the read failed; see the errors of this package.
	Err error
}

// Validation is the result of a Validate that did not fail.
type Validation struct {
	// Unknown means that only a read can show whether the config works.
	Unknown bool
	// Message is human-readable; may be empty.
	Message string
	// Warnings are about settings that work but should be changed.
	Warnings []string
}
