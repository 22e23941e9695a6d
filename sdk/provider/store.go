package provider

import (
	"context"
	"regexp"
)

// Store is one backend client, made from one provider config for one
// authentication namespace. Its methods are called concurrently, from its
// construction until Close, never after. What else it can do is found by the
// interfaces that its type implements, such as Reader; they are the kind's
// capabilities.
type Store interface {
	// Validate tells whether the config can work. It may ask the backend. An
	// error made by InvalidConfig, Unauthenticated or AccessDenied is a
	// verdict on the config; any other says that no verdict could be had.
	Validate(ctx context.Context) (Validation, error)

	// Close releases what the store holds, such as a login. It is called once.
	Close(ctx context.Context) error
}

// Reader is a Store that reads secrets.
type Reader interface {
	Store

	// Read performs a batch of reads and answers as many results in the same
	// order. What fails all of them, such as a refused login, is the error of
	// each, with StoreScope set: the batch then fails as a whole. An empty batch
	// is never asked for.
	Read(ctx context.Context, reads []Read) []Result
}

// Finder is a Store that finds secrets by their names and tags.
type Finder interface {
	Store

	// Find calls found with each secret that matches, once, in any order, and
	// one at a time. An error that found gives ends the search: Find returns
	// it. A Find that returns nil has told of every secret that matches.
	Find(ctx context.Context, query Query, found func(Found) error) error
}

// Query says which secrets are looked for. What is empty does not narrow the
// search.
type Query struct {
	// Path to look below, in the backend's own terms; nil means everywhere.
	Path *string
	// Name that a secret's key must match; nil matches all.
	Name *regexp.Regexp
	// Tags that a secret must have.
	Tags map[string]string
}

// Matches tells whether a secret's key and tags match. Path is the store's own
// to judge.
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

// Found is a secret that Find tells of.
type Found struct {
	// Key by which Read would find the secret; never empty.
	Key string
	// Value of the whole secret.
	Value []byte
}

// Shape of what a read answers.
type Shape int

const (
	// Value is one value.
	Value Shape = iota
	// Map is every key of the secret with its value.
	Map
)

// Read asks for one secret, or a property of it.
type Read struct {
	// Shape of the answer.
	Shape Shape
	// Key of the secret in the backend's own terms; never empty.
	Key string
	// Property inside the secret; empty means the whole.
	Property string
	// Version of the secret; empty means the latest.
	Version string
	// Metadata asks for the secret's metadata in place of its value.
	Metadata bool
	// KnownRevision that the caller holds; where it is the current one the
	// result may be NotModified. Empty means none.
	KnownRevision string
}

// Result answers one Read: an Err, or NotModified, or what Shape asked for.
type Result struct {
	// Value answers shape Value. It may be empty.
	Value []byte
	// Map answers shape Map. It may be empty.
	Map map[string][]byte
	// NotModified says that the caller's KnownRevision is the current one.
	NotModified bool
	// Revision of what was read, opaque; empty where the backend has none.
	Revision string
	// Err says why the read failed; see the errors of this package.
	Err error
}

// Validation is a verdict on a config.
type Validation struct {
	// Unknown says that only a real read can tell.
	Unknown bool
	// Message for people; may be empty.
	Message string
	// Warnings name what works but should be changed.
	Warnings []string
}
