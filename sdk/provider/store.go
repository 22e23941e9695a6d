package provider

import "context"

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
	// each. An empty batch is never asked for.
	Read(ctx context.Context, reads []Read) []Result
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
