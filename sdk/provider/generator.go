package provider

import (
	"context"
	"time"
)

// Generator generates credentials that did not exist before. It is constructed
// from one provider config for one authentication namespace, and is used for
// several calls. Its methods are called concurrently, from its construction until
// Close, never after.
type Generator interface {
	// Generate creates a credential. The SDK returns the result of an idempotency
	// key again without a call, for as long as the process keeps it; a key arrives
	// here once more after an error, or after a restart of the process. Generate
	// then returns the same credential, or fails with ResultLost; it never creates
	// a second one that would have to be revoked. Its context is not cancelled
	// when the caller gives up, only after two minutes.
	Generate(ctx context.Context, generation Generation) (Generated, error)

	// Close releases what the generator holds, such as a login. It is called once.
	Close(ctx context.Context) error
}

// Generation asks for a credential.
type Generation struct {
	// IdempotencyKey is unique to one intent to generate; never empty.
	IdempotencyKey string
}

// Generated is a credential.
type Generated struct {
	// Values of the credential, by key; at least one. Keys and values have 1 MiB
	// together at most.
	Values map[string][]byte
	// State is what Cleanup needs to revoke the credential. It is opaque, is
	// recorded in the cluster, has 64 KiB at most and holds no secret value. Empty
	// means that the key is enough, or that there is nothing to revoke.
	State []byte
	// ExpiresAt is when the credential expires; zero means never.
	ExpiresAt time.Time
}

// Cleaner is a Generator whose credentials can be revoked.
type Cleaner interface {
	Generator

	// Cleanup revokes a credential. It may be repeated: a credential that does not
	// exist is no error, whether it was revoked before or never created. The
	// generator is constructed from the config as it was when the credential was
	// created, which may no longer exist in the cluster.
	Cleanup(ctx context.Context, cleanup Cleanup) error
}

// Cleanup asks for a credential to be revoked.
type Cleanup struct {
	// IdempotencyKey with which the credential was generated; never empty.
	IdempotencyKey string
	// State that Generate returned; empty where its answer was lost.
	State []byte
}
