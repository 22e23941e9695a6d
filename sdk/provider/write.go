package provider

import (
	"context"
)

// Pusher is a Store that writes secrets.
type Pusher interface {
	Store

	// Push makes a secret, or a property of one, hold a value. It compares
	// first and writes only a difference, so that it may be repeated. A secret
	// that carries the mark of another owner stays as it is, and so does one
	// without a mark unless Adopt is set: the error is NotOwned.
	Push(ctx context.Context, push Push) (Pushed, error)
}

// Push asks for a value to be written.
type Push struct {
	// Key of the secret in the backend's own terms; never empty.
	Key string
	// Property inside the secret; empty means the whole.
	Property string
	// Value to be there.
	Value []byte
	// IfNotExists leaves a secret, or the property of it, that is there as it
	// is, whoever owns it.
	IfNotExists bool
	// Settings are the provider's own, as JSON; see DecodeSettings. Empty means
	// none.
	Settings []byte
	// Owner marks whose secret it is; never empty.
	Owner string
	// Adopt takes over a secret that carries no mark.
	Adopt bool
}

// Pushed says what a Push did.
type Pushed struct {
	// Changed tells whether anything was written.
	Changed bool
	// Revision that the secret has now; empty where the backend has none.
	Revision string
}

// Deleter is a Store that deletes secrets.
type Deleter interface {
	Store

	// Delete makes a secret, or a property of one, absent and tells whether
	// anything was deleted. One that is absent already is no error; one that
	// does not carry the owner's mark stays: the error is NotOwned.
	Delete(ctx context.Context, deletion Deletion) (changed bool, err error)
}

// Deletion asks for a secret to be deleted.
type Deletion struct {
	// Key of the secret in the backend's own terms; never empty.
	Key string
	// Property inside the secret; empty means the whole. A secret whose last
	// property is deleted goes as a whole.
	Property string
	// Owner that the secret must be marked with; never empty.
	Owner string
}

// Checker is a Store that tells whether a secret is there without reading it
// to anybody.
type Checker interface {
	Store

	// Exists tells whether the secret, or a property of it, is there. Only what
	// is proven absent is not: a secret that may not be read is an error.
	Exists(ctx context.Context, key, property string) (bool, error)
}

// Watcher is a Store that tells of changes.
type Watcher interface {
	Store

	// Watch calls tell with what changes until ctx ends, or it can watch no
	// longer, and then gives the reason; it does not give up on its own. Its
	// first call, with an empty Change, says that the watch stands: whatever
	// changes after it is told of. It calls tell once at a time; an error of
	// tell ends the watch. Without keys it tells of every secret of the store.
	Watch(ctx context.Context, keys []string, tell func(Change) error) error
}

// Change is what a watch tells of.
type Change struct {
	// Keys of secrets that changed, were made or were deleted.
	Keys []string
	// Resync says that changes may have been missed.
	Resync bool
}
