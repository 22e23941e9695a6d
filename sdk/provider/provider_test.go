package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// What each constructor promises in its comment.
func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name, why string
		err       *Error
		want      Error
	}{
		{name: "NotFound", why: "of one secret: the operator may delete its target", err: NotFound("m %d", 1), want: Error{Code: codes.NotFound, Reason: pb.ReasonNotFound}},
		{name: "PropertyNotFound", why: "the same code, another reason", err: PropertyNotFound("m %d", 1), want: Error{Code: codes.NotFound, Reason: pb.ReasonPropertyNotFound}},
		{name: "AccessDenied", why: "of one secret: others may be allowed", err: AccessDenied("m %d", 1), want: Error{Code: codes.PermissionDenied, Reason: pb.ReasonAccessDenied}},
		{name: "Unauthenticated", why: "of the store: no read works without a login", err: Unauthenticated("m %d", 1), want: Error{Code: codes.Unauthenticated, Reason: pb.ReasonUnauthenticated, StoreScope: true}},
		{name: "NotOwned", why: "of one secret: it is not changed", err: NotOwned("m %d", 1), want: Error{Code: codes.FailedPrecondition, Reason: pb.ReasonNotOwned}},
		{name: "InvalidConfig", why: "of the store", err: InvalidConfig("m %d", 1), want: Error{Code: codes.FailedPrecondition, Reason: pb.ReasonInvalidConfig, StoreScope: true}},
		{name: "OwnIdentityDenied", why: "of the store, and with the flag to set", err: OwnIdentityDenied("a"), want: Error{
			Code: codes.FailedPrecondition, Reason: pb.ReasonReferenceDenied, StoreScope: true,
			Message: `spec.auth names no credential, and configs in namespace "a" may not use the provider's own identity: set spec.auth, or start the provider with --own-identity-namespace=a`,
		}},
		{name: "InvalidRequest", why: "of one secret", err: InvalidRequest("m %d", 1), want: Error{Code: codes.InvalidArgument, Reason: pb.ReasonInvalidRequest}},
		{name: "Unsupported", why: "of one secret", err: Unsupported("m %d", 1), want: Error{Code: codes.Unimplemented, Reason: pb.ReasonUnsupported}},
		{name: "Throttled", why: "of the store, and with when", err: Throttled(time.Minute, "m %d", 1), want: Error{Code: codes.ResourceExhausted, Reason: pb.ReasonThrottled, StoreScope: true, RetryAfter: time.Minute}},
		{name: "Unavailable", why: "of the store", err: Unavailable("m %d", 1), want: Error{Code: codes.Unavailable, Reason: pb.ReasonUnavailable, StoreScope: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want.Message == "" {
				test.want.Message = "m 1"
			}

			if diff := cmp.Diff(test.want, *test.err); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestAsError(t *testing.T) {
	typed := NotFound("none")

	for _, test := range []struct {
		name, why string
		err       error
		want      Error
	}{
		{name: "typed", why: "it is one already", err: typed, want: *typed},
		{name: "wrapped", why: "layers above add text and keep the code", err: fmt.Errorf("cannot read: %w", typed), want: *typed},
		{name: "joined", why: "likewise", err: errors.Join(errors.New("first"), typed), want: *typed},
		{
			name: "time-out", why: "the backend may be slow, the request is not wrong",
			err: fmt.Errorf("GET: %w", context.DeadlineExceeded), want: Error{Code: codes.DeadlineExceeded, Reason: pb.ReasonUnavailable, Message: "GET: context deadline exceeded"},
		},
		{
			name: "cancelled", why: "the caller went away",
			err: context.Canceled, want: Error{Code: codes.Canceled, Reason: pb.ReasonUnavailable, Message: "context canceled"},
		},
		{
			name: "anything", why: "what says nothing must never look like not found",
			err: errors.New("odd"), want: Error{Code: codes.Unknown, Reason: pb.ReasonInternal, Message: "odd"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, *AsError(test.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestGRPCStatus(t *testing.T) {
	info := func(reason, scope string) *errdetails.ErrorInfo {
		return &errdetails.ErrorInfo{Domain: "externalsecrets.provider", Reason: reason, Metadata: map[string]string{"scope": scope}}
	}

	for _, test := range []struct {
		name, why string
		err       *Error
		code      codes.Code
		message   string
		details   []proto.Message
	}{
		{name: "item", why: "an error concerns one secret unless it says otherwise", err: NotFound("none"), code: codes.NotFound, message: "none", details: []proto.Message{info("NOT_FOUND", "item")}},
		{
			name: "store with retry", why: "both details cross the wire", err: Throttled(1500*time.Millisecond, "slow down"), code: codes.ResourceExhausted, message: "slow down",
			details: []proto.Message{info("THROTTLED", "store"), &errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)}},
		},
		{name: "without a code", why: "status OK with an error would be a success without an answer", err: &Error{Message: "m"}, code: codes.Internal, message: "m", details: []proto.Message{info("INTERNAL", "item")}},
		{name: "code of another world", why: "an HTTP status is no gRPC code", err: &Error{Code: 403, Message: "m"}, code: codes.Internal, message: "m", details: []proto.Message{info("INTERNAL", "item")}},
		{name: "not UTF-8", why: "the details would be lost", err: AccessDenied("no \xff"), code: codes.PermissionDenied, message: "no \uFFFD", details: []proto.Message{info("ACCESS_DENIED", "item")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := test.err.GRPCStatus()
			if s.Code() != test.code || s.Message() != test.message {
				t.Errorf("%s: %v %q", test.why, s.Code(), s.Message())
			}

			var details []proto.Message
			for _, detail := range s.Details() {
				details = append(details, detail.(proto.Message))
			}

			if diff := cmp.Diff(test.details, details, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}

			if _, err := proto.Marshal(s.Proto()); err != nil {
				t.Errorf("%s: it cannot be sent: %v", test.why, err)
			}
		})
	}
}

type plain struct{}

func (plain) Validate(context.Context) (Validation, error) { return Validation{}, nil }
func (plain) Close(context.Context) error                  { return nil }

type reader struct{ plain }

func (*reader) Read(context.Context, []Read) []Result { return nil }

func TestStoreKind(t *testing.T) {
	reads := StoreKind(corev1.AddToScheme, func(_ context.Context, _ Environment, config *corev1.ConfigMap) (*reader, error) {
		if config.Name == "" {
			return nil, InvalidConfig("no name")
		}

		return &reader{}, nil
	})
	idle := StoreKind(corev1.AddToScheme, func(context.Context, Environment, *corev1.ConfigMap) (plain, error) { return plain{}, nil })

	if diff := cmp.Diff([]pb.Capability{pb.Capability_CAPABILITY_READ}, reads.Definition().Capabilities); diff != "" {
		t.Errorf("capabilities of a Reader (-want +got):\n%s", diff)
	}

	if got := idle.Definition().Capabilities; len(got) != 0 {
		t.Errorf("capabilities of a Store that can do nothing else: %v", got)
	}

	if got, want := reads.Definition().GroupVersionKind, (schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}); got != want {
		t.Errorf("kind is %v", got)
	}

	config, ok := reads.Definition().NewConfig().(*corev1.ConfigMap)
	if !ok || config == reads.Definition().NewConfig() {
		t.Errorf("a new config is a %T, and must be another each time", reads.Definition().NewConfig())
	}

	if _, err := reads.Definition().New(t.Context(), Environment{}, config); AsError(err).Reason != pb.ReasonInvalidConfig {
		t.Errorf("the constructor's error became %v", err)
	}

	config.Name = "named"

	if store, err := reads.Definition().New(t.Context(), Environment{}, config); err != nil || store == nil {
		t.Errorf("no store: %v", err)
	}

	if _, err := reads.Definition().New(t.Context(), Environment{}, &corev1.Secret{}); err == nil {
		t.Error("a store was created from another kind's config")
	}

	scheme := runtime.NewScheme()
	if err := reads.Definition().AddToScheme(scheme); err != nil || !scheme.Recognizes(reads.Definition().GroupVersionKind) {
		t.Errorf("the scheme does not know the kind: %v", err)
	}
}

// A registration that cannot work is seen at the program's first start.
func TestStoreKindPanics(t *testing.T) {
	for _, test := range []struct {
		name, why string
		add       func(*runtime.Scheme) error
		want      string
	}{
		{name: "unknown type", why: "addToScheme belongs to another kind", add: func(*runtime.Scheme) error { return nil }, want: "no kind is registered"},
		{name: "scheme fails", why: "two types of one name", add: func(*runtime.Scheme) error { return errors.New("twice") }, want: "twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, test.want) {
					t.Errorf("%s: recovered %s", test.why, text)
				}
			}()

			StoreKind(test.add, func(context.Context, Environment, *corev1.ConfigMap) (plain, error) { return plain{}, nil })
		})
	}
}
