package store

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// Error is the failure of a read, as the provider protocol describes failures.
type Error struct {
	// Code is a canonical gRPC code, never OK.
	Code codes.Code
	// Reason in UPPER_SNAKE_CASE, such as the protocol's NOT_FOUND; may be empty.
	Reason string
	// Message of a condition. It must not contain secret values.
	Message string
	// Item means that the error concerns the one secret that was read, and not
	// every read of the store.
	Item bool
	// RetryAfter is the pause that the backend asks for; 0 where it asks for
	// none.
	RetryAfter time.Duration
	// RequestID of the call, which the provider logs too.
	RequestID string
	// Untrusted means that the TLS handshake failed.
	Untrusted bool
	// Breach means that the answer violates the protocol.
	Breach bool
}

// Error returns message, code and request id.
func (e *Error) Error() string {
	text := e.Message + " (" + e.Code.String()
	if e.RequestID != "" {
		text += ", request " + e.RequestID
	}

	return text + ")"
}

// NotFound reports whether the secret is proven absent. An absent property, or
// an absent object that a config refers to, proves nothing about the secret.
func (e *Error) NotFound() bool {
	return e.Code == codes.NotFound && e.Item && e.Reason == pb.ReasonNotFound
}

// Unimplemented reports whether the call is not served at all.
func (e *Error) Unimplemented() bool { return e.Code == codes.Unimplemented }

// DenialError says why a store must not be used. Retrying does not help: it
// ends when an object changes.
type DenialError struct {
	// Reason of a condition, in CamelCase.
	Reason string
	// Message of a condition.
	Message string
	// Retry means that no watch reports the change that ends the denial, so that
	// the store has to be validated again after a while.
	Retry bool
}

// Error returns the message.
func (d *DenialError) Error() string { return d.Message }

// UnservedError says that this build has no Resolver for an apiVersion.
type UnservedError struct {
	// Reference to the store.
	Reference Reference
	// Field of the reference in its object, such as spec.secretStoreRef.
	Field string
	// Served are the apiVersions that have a Resolver, sorted.
	Served []string
}

// Error names the field and the values that it may have.
func (e *UnservedError) Error() string {
	return fmt.Sprintf("%s.apiVersion: this build serves no store of %s, which an absent value means too: set it to %s",
		e.Field, e.Reference.APIVersion, strings.Join(e.Served, " or "))
}
