package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// Error is a failure that the operator can act on. Its message is shown to
// users: it names what and where, and never holds a value or a credential.
type Error struct {
	// Code decides what the operator does.
	Code codes.Code
	// Reason in UPPER_SNAKE_CASE, for machines.
	Reason string
	// Message for people.
	Message string
	// StoreScope says that every call through the same store would fail.
	StoreScope bool
	// RetryAfter is when the backend wants to be asked again; 0 means that it
	// did not say.
	RetryAfter time.Duration
}

// Error gives the message.
func (e *Error) Error() string { return e.Message }

// GRPCStatus makes the error one that crosses the wire whole: its texts are
// UTF-8, and an error without a code is a defect, not a success.
func (e *Error) GRPCStatus() *status.Status {
	code, reason := e.Code, e.Reason
	if code == codes.OK || code > codes.Unauthenticated {
		code = codes.Internal
	}

	if reason == "" && code == codes.Internal {
		reason = pb.ReasonInternal
	}

	s := status.New(code, strings.ToValidUTF8(e.Message, "\uFFFD"))

	scope := pb.ScopeItem
	if e.StoreScope {
		scope = pb.ScopeStore
	}

	info := &errdetails.ErrorInfo{Domain: pb.ErrorDomain, Reason: strings.ToValidUTF8(reason, "\uFFFD"), Metadata: map[string]string{pb.MetadataScope: scope}}

	withInfo, err := s.WithDetails(info)
	if err != nil {
		return s
	}

	if e.RetryAfter > 0 {
		if withRetry, err := withInfo.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}); err == nil {
			return withRetry
		}
	}

	return withInfo
}

// NotFound says that the backend was reached, let the caller in, and has no
// such secret or version. The operator may delete a target on the strength of
// it.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Message: fmt.Sprintf(format, args...)}
}

// PropertyNotFound says that the secret exists and the property does not.
func PropertyNotFound(format string, args ...any) *Error {
	return &Error{Code: codes.NotFound, Reason: pb.ReasonPropertyNotFound, Message: fmt.Sprintf(format, args...)}
}

// AccessDenied says that the backend refuses the caller this secret.
func AccessDenied(format string, args ...any) *Error {
	return &Error{Code: codes.PermissionDenied, Reason: pb.ReasonAccessDenied, Message: fmt.Sprintf(format, args...)}
}

// Unauthenticated says that the backend refuses the caller's credentials. The
// SDK then makes a new store, with the references resolved afresh, and tries
// once more.
func Unauthenticated(format string, args ...any) *Error {
	return &Error{Code: codes.Unauthenticated, Reason: pb.ReasonUnauthenticated, Message: fmt.Sprintf(format, args...), StoreScope: true}
}

// NotOwned says that the secret belongs to somebody else, or carries no mark and
// was not to be adopted. It stays as it is.
func NotOwned(format string, args ...any) *Error {
	return &Error{Code: codes.FailedPrecondition, Reason: pb.ReasonNotOwned, Message: fmt.Sprintf(format, args...)}
}

// InvalidConfig says that the provider config cannot work; the message names
// the field.
func InvalidConfig(format string, args ...any) *Error {
	return &Error{Code: codes.FailedPrecondition, Reason: pb.ReasonInvalidConfig, Message: fmt.Sprintf(format, args...), StoreScope: true}
}

// OwnIdentityDenied says that the config would log in as the provider process
// itself, which Environment.OwnIdentity does not allow.
func OwnIdentityDenied(namespace string) *Error {
	e := InvalidConfig("spec.auth names no credential, and configs in namespace %q may not use the provider's own identity: set spec.auth, or start the provider with --own-identity-namespace=%s", namespace, namespace)
	e.Reason = pb.ReasonReferenceDenied

	return e
}

// InvalidRequest says that what was asked makes no sense to the backend, such
// as a malformed version.
func InvalidRequest(format string, args ...any) *Error {
	return &Error{Code: codes.InvalidArgument, Reason: pb.ReasonInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// Unsupported says that the backend cannot do what was asked.
func Unsupported(format string, args ...any) *Error {
	return &Error{Code: codes.Unimplemented, Reason: pb.ReasonUnsupported, Message: fmt.Sprintf(format, args...)}
}

// Throttled says that the backend asks to be called less, and from when on it
// may be called again; 0 where it did not say.
func Throttled(after time.Duration, format string, args ...any) *Error {
	return &Error{Code: codes.ResourceExhausted, Reason: pb.ReasonThrottled, Message: fmt.Sprintf(format, args...), StoreScope: true, RetryAfter: after}
}

// Unavailable says that the backend does not answer, or not properly.
func Unavailable(format string, args ...any) *Error {
	return &Error{Code: codes.Unavailable, Reason: pb.ReasonUnavailable, Message: fmt.Sprintf(format, args...), StoreScope: true}
}

// ResultLost says that a credential was generated with the same idempotency key
// before and cannot be returned again. The operator then generates another one
// with a new key and cleans this one up.
func ResultLost(format string, args ...any) *Error {
	return &Error{Code: codes.Aborted, Reason: pb.ReasonResultLost, Message: fmt.Sprintf(format, args...)}
}

// AsError makes any error one of this package: itself where it is one already,
// a time-out or cancellation by its own code, and anything else Unknown.
func AsError(err error) *Error {
	var typed *Error

	switch {
	case errors.As(err, &typed):
		return typed
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: codes.DeadlineExceeded, Reason: pb.ReasonUnavailable, Message: err.Error()}
	case errors.Is(err, context.Canceled):
		return &Error{Code: codes.Canceled, Reason: pb.ReasonUnavailable, Message: err.Error()}
	default:
		return &Error{Code: codes.Unknown, Reason: pb.ReasonInternal, Message: err.Error()}
	}
}
