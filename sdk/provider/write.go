package provider

import (
	"context"
)

// Pusher is a Store that writes secrets.
type Pusher interface {
	Store

	// Push writes a value to a secret, or to a property of one. It compares first and
	// writes only a difference, so that it is safe to repeat. A secret with the mark
	// of another owner is not changed, and neither is one without a mark unless Adopt
	// is set: the error is NotOwned. Package ownership checks this.
	Push(ctx context.Context, push Push) (Pushed, error)
}

// Push is a value to write.
type Push struct {
	// Key of the secret in the backend's own terms; never empty.
	Key string
	// Property of the secret; empty means the whole secret.
	Property string
	// Value to write.
	Value []byte
	// IfNotExists does not change a secret, or the property of it, that exists,
	// whatever its owner is.
	IfNotExists bool
	// Settings that are specific to the provider, as JSON; see DecodeSettings. Empty
	// means none.
	Settings []byte
	// Owner that the secret is marked with; never empty.
	Owner string
	// Adopt takes over a secret that has no mark.
	Adopt bool
}

// Pushed is the result of a Push.
type Pushed struct {
	// Changed reports whether the secret was written.
	Changed bool
	// Revision of the secret after the push; empty where the backend has none.
	Revision string
}

// Deleter is a Store that deletes secrets.
type Deleter interface {
	Store

	// Delete deletes a secret, or a property of one, and reports whether it changed
	// anything. A secret that does not exist is no error. A secret without the
	// owner's mark is not deleted: the error is NotOwned.
	Delete(ctx context.Context, deletion Deletion) (changed bool, err error)
}

// Deletion is a secret to delete.
type Deletion struct {
	// Key of the secret in the backend's own terms; never empty.
	Key string
	// Property of the secret; empty means the whole secret. A secret whose last
	// property is deleted is deleted as a whole.
	Property string
	// Owner that the secret must be marked with; never empty.
	Owner string
}

// Checker is a Store that reports whether a secret exists, without returning its
// value.
type Checker interface {
	Store

	// Exists reports whether the secret, or a property of it, exists. It returns false
	// only where that is proven: a secret that may not be read is an error.
	Exists(ctx context.Context, key, property string) (bool, error)
}

// Watcher is a Store that reports changes.
type Watcher interface {
	Store

	// Watch calls report with each change until ctx is done, or the watch fails, and
	// returns the reason. It first calls report with an empty Change once the watch is
	// established: every later change is reported. It does not call report
	// concurrently, and returns an error of report. Without keys it watches every
	// secret of the store.
	Watch(ctx context.Context, keys []string, report func(Change) error) error
}

// Change is a change that a watch reports.
type Change struct {
	// Keys of secrets that were created, changed or deleted.
	Keys []string
	// Resync means that changes may have been missed.
	Resync bool
}
