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

// Error is a failure that the operator can act on. Its message is shown to users:
// it names what failed and where, and never contains a value or a credential.
type Error struct {
	// Code decides how the operator handles the error.
	Code codes.Code
	// Reason is machine-readable, in UPPER_SNAKE_CASE.
	Reason string
	// Message is human-readable.
	Message string
	// StoreScope means that every call through the same store would fail.
	StoreScope bool
	// RetryAfter is the time after which the backend may be called again; 0 means
	// that the backend gave none.
	RetryAfter time.Duration
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// GRPCStatus returns the error with its details. Texts are converted to UTF-8, and
// an error without a valid code gets the code Internal.
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

// NotFound means that the backend was reached, authenticated the caller, and has no
// such secret or version. The operator may delete a target because of it.
func NotFound(format string, args ...any) *Error {
	return &Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Message: fmt.Sprintf(format, args...)}
}

// PropertyNotFound means that the secret exists and the property does not.
func PropertyNotFound(format string, args ...any) *Error {
	return &Error{Code: codes.NotFound, Reason: pb.ReasonPropertyNotFound, Message: fmt.Sprintf(format, args...)}
}

// AccessDenied means that the backend does not allow access to this secret.
func AccessDenied(format string, args ...any) *Error {
	return &Error{Code: codes.PermissionDenied, Reason: pb.ReasonAccessDenied, Message: fmt.Sprintf(format, args...)}
}

// Unauthenticated means that the backend does not accept the credentials. The SDK
// then constructs a new store, with newly resolved references, and tries once
// more.
func Unauthenticated(format string, args ...any) *Error {
	return &Error{Code: codes.Unauthenticated, Reason: pb.ReasonUnauthenticated, Message: fmt.Sprintf(format, args...), StoreScope: true}
}

// NotOwned means that the secret belongs to another owner, or has no mark and was
// not to be adopted. It was not changed.
func NotOwned(format string, args ...any) *Error {
	return &Error{Code: codes.FailedPrecondition, Reason: pb.ReasonNotOwned, Message: fmt.Sprintf(format, args...)}
}

// InvalidConfig means that the provider config cannot work. The message names the
// field.
func InvalidConfig(format string, args ...any) *Error {
	return &Error{Code: codes.FailedPrecondition, Reason: pb.ReasonInvalidConfig, Message: fmt.Sprintf(format, args...), StoreScope: true}
}

// OwnIdentityDenied means that the config would log in as the provider process
// itself, which Environment.OwnIdentity does not allow.
func OwnIdentityDenied(namespace string) *Error {
	e := InvalidConfig("spec.auth names no credential, and configs in namespace %q may not use the provider's own identity: set spec.auth, or start the provider with --own-identity-namespace=%s", namespace, namespace)
	e.Reason = pb.ReasonReferenceDenied

	return e
}

// InvalidRequest means that the backend cannot interpret the request, such as a
// malformed version.
func InvalidRequest(format string, args ...any) *Error {
	return &Error{Code: codes.InvalidArgument, Reason: pb.ReasonInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// Unsupported means that the backend does not support the request.
func Unsupported(format string, args ...any) *Error {
	return &Error{Code: codes.Unimplemented, Reason: pb.ReasonUnsupported, Message: fmt.Sprintf(format, args...)}
}

// Throttled means that the backend limits the rate of calls, and may be called
// again after the given time; 0 where the backend gave none.
func Throttled(after time.Duration, format string, args ...any) *Error {
	return &Error{Code: codes.ResourceExhausted, Reason: pb.ReasonThrottled, Message: fmt.Sprintf(format, args...), StoreScope: true, RetryAfter: after}
}

// Unavailable means that the backend does not respond, or not with a valid answer.
func Unavailable(format string, args ...any) *Error {
	return &Error{Code: codes.Unavailable, Reason: pb.ReasonUnavailable, Message: fmt.Sprintf(format, args...), StoreScope: true}
}

// ResultLost means that a credential was generated with the same idempotency key
// before and cannot be returned again. The operator then generates another one
// with a new key and cleans this one up.
func ResultLost(format string, args ...any) *Error {
	return &Error{Code: codes.Aborted, Reason: pb.ReasonResultLost, Message: fmt.Sprintf(format, args...)}
}

// AsError converts any error to one of this package: an error of this package is
// returned as it is, a timeout or cancellation gets its own code, and any other
// error the code Unknown.
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
