package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/pkitest"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestGetInfo(t *testing.T) {
	p := start(t, &backend{}, Options{})

	got, err := p.info.GetInfo(p.context(), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}

	want := &pb.GetInfoResponse{
		Name: "test", Version: "1.2.3", ProtocolVersions: []string{"v2alpha1"},
		Kinds: []*pb.Kind{
			{ApiVersion: "v1", Kind: "ConfigMap", Service: pb.Service_SERVICE_SECRET_STORE, Capabilities: []pb.Capability{
				pb.Capability_CAPABILITY_READ, pb.Capability_CAPABILITY_PUSH, pb.Capability_CAPABILITY_DELETE, pb.Capability_CAPABILITY_EXISTS, pb.Capability_CAPABILITY_WATCH,
			}},
			{ApiVersion: "v1", Kind: "Secret", Service: pb.Service_SERVICE_SECRET_STORE},
		},
		Limits: &pb.Limits{MaxBatchSize: 256, MaxMessageBytes: 4 << 20},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}

	if made, _ := p.counts(); made != 0 {
		t.Error("GetInfo created a store")
	}
}

// That the CA has signed a certificate is not enough.
func TestServesTheOperatorAlone(t *testing.T) {
	p := start(t, &backend{}, Options{})
	stranger := p.dial(p.ca.Issue(t, pkitest.Leaf{CommonName: "other", URIs: []string{"spiffe://external-secrets.io/provider/other"}}))

	defer stranger.Close()

	if _, err := pb.NewProviderInfoClient(stranger).GetInfo(p.context(), &pb.GetInfoRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("another provider was answered: %v", err)
	}

	if _, err := p.info.GetInfo(p.context(), &pb.GetInfoRequest{}); err != nil {
		t.Errorf("the operator was not: %v", err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	for _, test := range []struct {
		name, why  string
		reflection bool
		want       codes.Code
	}{
		{name: "off", why: "by default only the protocol's services are exposed", want: codes.Unimplemented},
		{name: "on", why: "grpcurl needs it for debugging", reflection: true, want: codes.OK},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, &backend{}, Options{Reflection: test.reflection})

			health, err := healthpb.NewHealthClient(p.conn).Check(p.context(), &healthpb.HealthCheckRequest{})
			if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("health is %v, %v", health.GetStatus(), err)
			}

			stream, err := reflectionpb.NewServerReflectionClient(p.conn).ServerReflectionInfo(p.context())
			if err != nil {
				t.Fatal(err)
			}

			if err := stream.Send(&reflectionpb.ServerReflectionRequest{
				MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
			}); err != nil && !errors.Is(err, io.EOF) { // The refusal may be quicker.
				t.Fatal(err)
			}

			if _, err := stream.Recv(); status.Code(err) != test.want {
				t.Errorf("%s: %v", test.why, err)
			}
		})
	}
}

func TestGetSecrets(t *testing.T) {
	var seen []provider.Read

	p := start(t, &backend{read: func(_ context.Context, reads []provider.Read) []provider.Result {
		seen = slices.Clone(reads)

		return []provider.Result{
			{Value: []byte("\x00binary\xff"), Revision: "r1"},
			{Value: []byte{}, Revision: "r2"},
			{Map: map[string][]byte{"a": []byte("1"), "b": {0xff}}, Revision: "r3"},
			{NotModified: true, Revision: "r4"},
			{Err: provider.NotFound("secret %q does not exist", "e"), Revision: "of an error"},
			{Err: provider.Throttled(7*time.Second, "slow down")},
			{Err: errors.New("anything")},
			{Err: fmt.Errorf("cannot read: %w", context.DeadlineExceeded)},
			{Err: &provider.Error{Message: "a store that forgets the code"}},
		}
	}}, Options{})

	request := &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{
		{Id: "0", Shape: pb.Shape_SHAPE_VALUE, Key: "a", Property: "p", Version: "3", KnownRevision: "r0"},
		{Id: "1", Shape: pb.Shape_SHAPE_VALUE, Key: "b", MetadataPolicy: pb.MetadataPolicy_METADATA_POLICY_FETCH},
		{Id: "2", Shape: pb.Shape_SHAPE_MAP, Key: "c", MetadataPolicy: pb.MetadataPolicy_METADATA_POLICY_NONE},
		{Id: "3", Shape: pb.Shape_SHAPE_VALUE, Key: "d", KnownRevision: "r4"},
		read("e"), read("f"), read("g"), read("h"), read("i"),
	}}

	got, err := p.secrets.GetSecrets(p.context(), request)
	if err != nil {
		t.Fatal(err)
	}

	wantReads := []provider.Read{
		{Key: "a", Property: "p", Version: "3", KnownRevision: "r0"},
		{Key: "b", Metadata: true},
		{Key: "c", Shape: provider.Map},
		{Key: "d", KnownRevision: "r4"},
		{Key: "e"}, {Key: "f"}, {Key: "g"}, {Key: "h"}, {Key: "i"},
	}
	if diff := cmp.Diff(wantReads, seen); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}

	failed := func(id string, e *pb.Error) *pb.SecretResult {
		return &pb.SecretResult{Id: id, Outcome: &pb.SecretResult_Error{Error: e}}
	}
	want := &pb.GetSecretsResponse{Results: []*pb.SecretResult{
		{Id: "0", Revision: "r1", Outcome: &pb.SecretResult_Value{Value: []byte("\x00binary\xff")}},
		{Id: "1", Revision: "r2", Outcome: &pb.SecretResult_Value{Value: []byte{}}},
		{Id: "2", Revision: "r3", Outcome: &pb.SecretResult_Map{Map: &pb.SecretMap{Entries: []*pb.SecretEntry{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{0xff}}}}}},
		{Id: "3", Revision: "r4", Outcome: &pb.SecretResult_NotModified{NotModified: &pb.NotModified{}}},
		failed("e", &pb.Error{Code: int32(codes.NotFound), Reason: pb.ReasonNotFound, Message: `secret "e" does not exist`}),
		failed("f", &pb.Error{Code: int32(codes.ResourceExhausted), Reason: pb.ReasonThrottled, Message: "slow down", RetryAfter: durationpb.New(7 * time.Second)}),
		failed("g", &pb.Error{Code: int32(codes.Unknown), Reason: pb.ReasonInternal, Message: "anything"}),
		failed("h", &pb.Error{Code: int32(codes.DeadlineExceeded), Reason: pb.ReasonUnavailable, Message: "cannot read: context deadline exceeded"}),
		failed("i", &pb.Error{Code: int32(codes.Internal), Reason: pb.ReasonInternal, Message: "a store that forgets the code"}),
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.SortRepeated(func(a, b *pb.SecretEntry) bool { return a.GetKey() < b.GetKey() })); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

// What fails all of a batch fails the call, with the details that the operator
// decides by.
func TestErrorsOfTheCall(t *testing.T) {
	for _, test := range []struct {
		name, why string
		err       error
		want      failure
	}{
		{
			name: "invalid config", why: "the operator does not try again before the config changes",
			err: provider.InvalidConfig("spec.server: no"), want: of(codes.FailedPrecondition, pb.ReasonInvalidConfig, pb.ScopeStore),
		},
		{
			name: "refused login", why: "a store that was created for this call is not created again",
			err: provider.Unauthenticated("no"), want: of(codes.Unauthenticated, pb.ReasonUnauthenticated, pb.ScopeStore),
		},
		{
			name: "throttled", why: "RetryInfo says when",
			err: provider.Throttled(90*time.Second, "no"), want: failure{codes.ResourceExhausted, pb.ErrorDomain, pb.ReasonThrottled, pb.ScopeStore, 90 * time.Second},
		},
		{
			name: "wrapped", why: "an error's code must survive the layers above it",
			err: fmt.Errorf("cannot log in: %w", provider.Unavailable("no")), want: of(codes.Unavailable, pb.ReasonUnavailable, pb.ScopeStore),
		},
		{
			name: "untyped", why: "an untyped error is Unknown, and never NotFound",
			err: errors.New("no"), want: of(codes.Unknown, pb.ReasonInternal, pb.ScopeItem),
		},
		{
			name: "without a code", why: "an error with code OK would cross the wire as success",
			err: &provider.Error{Message: "no"}, want: of(codes.Internal, pb.ReasonInternal, pb.ScopeItem),
		},
		{
			name: "not UTF-8", why: "the details are proto strings: they would be lost silently",
			err: provider.InvalidConfig("spec.server: \xff"), want: of(codes.FailedPrecondition, pb.ReasonInvalidConfig, pb.ScopeStore),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, &backend{construct: func(context.Context, provider.Environment) error { return test.err }}, Options{})

			_, err := p.read("a")
			if diff := cmp.Diff(test.want, failureOf(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}

			if made, _ := p.counts(); made != 1 {
				t.Errorf("%d stores were created for one call", made)
			}
		})
	}
}

func TestChecksTheCallContext(t *testing.T) {
	empty := of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)
	denied := of(codes.PermissionDenied, pb.ReasonReferenceDenied, pb.ScopeStore)
	cluster := func(c *pb.CallContext) { c.Store.Kind, c.Store.Namespace = "ClusterSecretStore", "" }
	both := func(changes ...func(*pb.CallContext)) func(*pb.CallContext) {
		return func(c *pb.CallContext) {
			for _, change := range changes {
				change(c)
			}
		}
	}
	source := func(ns string) func(*pb.CallContext) { return func(c *pb.CallContext) { c.SourceNamespace = ns } }
	auth := func(ns string) func(*pb.CallContext) {
		return func(c *pb.CallContext) { c.AuthenticationNamespace = ns }
	}

	var refusedRetries int32 = -1

	p := start(t, &backend{
		read:     answer(func(provider.Read) provider.Result { return provider.Result{Value: []byte("v")} }),
		validate: func(context.Context) (provider.Validation, error) { return provider.Validation{}, nil },
	}, Options{})

	for _, test := range []struct {
		name, why      string
		change         func(*pb.CallContext)
		read, validate failure
	}{
		{name: "complete", why: "or the other cases would prove nothing", change: func(*pb.CallContext) {}},
		{name: "no store", why: "a message that is left out is empty", change: func(c *pb.CallContext) { c.Store = nil }, read: empty, validate: empty},
		{name: "no config", why: "likewise", change: func(c *pb.CallContext) { c.Config = nil }, read: empty, validate: empty},
		{name: "no request id", why: "without it the call cannot be correlated in two logs", change: func(c *pb.CallContext) { c.RequestId = "" }, read: empty, validate: empty},
		{name: "no store kind", why: "it determines the allowed combinations of namespaces", change: func(c *pb.CallContext) { c.Store.Kind = "" }, read: empty, validate: empty},
		{name: "unknown store kind", why: "likewise", change: func(c *pb.CallContext) { c.Store.Kind = "secretstore" }, read: empty, validate: empty},
		{name: "no store name", why: "each field is there to be relied on", change: func(c *pb.CallContext) { c.Store.Name = "" }, read: empty, validate: empty},
		{name: "no store uid", why: "a name alone may belong to a recreated object", change: func(c *pb.CallContext) { c.Store.Uid = "" }, read: empty, validate: empty},
		{name: "no apiVersion", why: "a kind's name alone is ambiguous", change: func(c *pb.CallContext) { c.Config.ApiVersion = "" }, read: empty, validate: empty},
		{name: "no kind", why: "likewise", change: func(c *pb.CallContext) { c.Config.Kind = "" }, read: empty, validate: empty},
		{name: "no config namespace", why: "\"\" must never be taken for a default", change: func(c *pb.CallContext) { c.Config.Namespace = "" }, read: empty, validate: empty},
		{name: "no config name", why: "likewise", change: func(c *pb.CallContext) { c.Config.Name = "" }, read: empty, validate: empty},
		{name: "no config uid", why: "caches are keyed by it", change: func(c *pb.CallContext) { c.Config.Uid = "" }, read: empty, validate: empty},
		{
			name: "no source", why: "only validation may omit the source namespace",
			change: source(""), read: empty,
		},
		{
			name: "no source of a cluster store", why: "likewise, although its credentials are those of the config",
			change: both(cluster, source("")), read: empty,
		},
		{
			name: "neither source nor authentication", why: "a read without either would resolve nowhere, and two empty ones are not equal",
			change: both(cluster, source(""), auth("")), read: empty,
		},
		{
			name: "negative retries", why: "no provider expects them",
			change: func(c *pb.CallContext) { c.Retry = &pb.RetrySettings{MaxRetries: &refusedRetries} }, read: empty, validate: empty,
		},
		{
			name: "negative interval", why: "likewise",
			change: func(c *pb.CallContext) {
				c.Retry = &pb.RetrySettings{RetryInterval: durationpb.New(-time.Second)}
			},
			read: empty, validate: empty,
		},
		{
			name: "store without its namespace", why: "a SecretStore has one",
			change: func(c *pb.CallContext) { c.Store.Namespace = "" }, read: denied, validate: denied,
		},
		{
			name: "config of another namespace", why: "a SecretStore never leaves its namespace",
			change: func(c *pb.CallContext) { c.Config.Namespace = "team-b" }, read: denied, validate: denied,
		},
		{
			name: "source of another namespace", why: "a SecretStore serves its own namespace only",
			change: source("team-b"), read: denied, validate: denied,
		},
		{
			name: "authentication in another namespace", why: "a SecretStore uses credentials of its own namespace only",
			change: auth("team-b"), read: denied, validate: denied,
		},
		{
			name: "no authentication namespace", why: "a SecretStore's is always known",
			change: auth(""), read: denied, validate: denied,
		},
		{
			name: "cluster store", why: "credentials in the config's namespace, used from anywhere",
			change: both(cluster, source("team-b")),
		},
		{
			name: "cluster store, manifest's credentials", why: "credentials in the user's namespace",
			change: both(cluster, source("team-b"), auth("team-b")),
		},
		{
			name: "cluster store, credentials of a third namespace", why: "of a namespace that is neither the config's nor the user's",
			change: both(cluster, source("team-b"), auth("team-c")), read: denied, validate: denied,
		},
		{
			name: "cluster store without authentication namespace", why: "a source is known, so its namespace must be as well",
			change: both(cluster, source("team-b"), auth("")), read: denied, validate: denied,
		},
		{
			name: "cluster store with a namespace", why: "there is no such object",
			change: func(c *pb.CallContext) { c.Store.Kind = "ClusterSecretStore" }, read: denied, validate: denied,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			call := callContext()
			test.change(call)

			_, err := p.secrets.GetSecrets(p.context(), &pb.GetSecretsRequest{Context: call, Reads: []*pb.SecretRead{read("a")}})
			if diff := cmp.Diff(test.read, failureOf(err)); diff != "" {
				t.Errorf("%s: GetSecrets: %v (-want +got):\n%s", test.why, err, diff)
			}

			_, err = p.secrets.Validate(p.context(), &pb.ValidateRequest{Context: call})
			if diff := cmp.Diff(test.validate, failureOf(err)); diff != "" {
				t.Errorf("%s: Validate: %v (-want +got):\n%s", test.why, err, diff)
			}
		})
	}

	t.Run("no context", func(t *testing.T) {
		if _, err := p.secrets.GetSecrets(p.context(), &pb.GetSecretsRequest{}); failureOf(err) != empty {
			t.Errorf("GetSecrets: %v", err)
		}

		if _, err := p.secrets.Validate(p.context(), &pb.ValidateRequest{}); failureOf(err) != empty {
			t.Errorf("Validate: %v", err)
		}
	})
}

func TestChecksTheBatch(t *testing.T) {
	many := func(n int) []*pb.SecretRead {
		reads := make([]*pb.SecretRead, 0, n)
		for i := range n {
			reads = append(reads, read(fmt.Sprint("key-", i)))
		}

		return reads
	}
	invalid := of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)

	for _, test := range []struct {
		name, why string
		reads     []*pb.SecretRead
		want      failure
	}{
		{name: "empty", why: "nothing asked, nothing answered, and no store needed"},
		{name: "full", why: "the limit itself is within it", reads: many(256)},
		{name: "over full", why: "GetInfo names the limit", reads: many(257), want: of(codes.InvalidArgument, pb.ReasonTooLarge, pb.ScopeItem)},
		{name: "same id twice", why: "one of the answers would be lost", reads: []*pb.SecretRead{read("a"), read("a")}, want: invalid},
		{name: "no id", why: "the result could not be assigned to its read", reads: []*pb.SecretRead{{Shape: pb.Shape_SHAPE_VALUE, Key: "a"}}, want: invalid},
		{name: "no key", why: "no backend has a secret without a name", reads: []*pb.SecretRead{{Id: "a", Shape: pb.Shape_SHAPE_VALUE}}, want: invalid},
		{name: "no shape", why: "a value and a map are not the same", reads: []*pb.SecretRead{{Id: "a", Key: "a"}}, want: invalid},
		{name: "unknown shape", why: "a newer operator must receive an error", reads: []*pb.SecretRead{{Id: "a", Key: "a", Shape: 9}}, want: invalid},
		{
			name: "unknown metadata policy", why: "a value must not be returned for a metadata request",
			reads: []*pb.SecretRead{{Id: "a", Key: "a", Shape: pb.Shape_SHAPE_VALUE, MetadataPolicy: 9}}, want: invalid,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, &backend{read: answer(func(r provider.Read) provider.Result { return provider.Result{Value: []byte(r.Key)} })}, Options{})

			got, err := p.secrets.GetSecrets(p.context(), &pb.GetSecretsRequest{Context: callContext(), Reads: test.reads})
			if diff := cmp.Diff(test.want, failureOf(err)); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", test.why, diff)
			}

			if err == nil && len(got.GetResults()) != len(test.reads) {
				t.Errorf("%s: %d results to %d reads", test.why, len(got.GetResults()), len(test.reads))
			}

			if made, _ := p.counts(); made != 0 && (err != nil || len(test.reads) == 0) {
				t.Errorf("%s: a store was made", test.why)
			}
		})
	}
}

// A store is external code: its answers are validated.
func TestChecksTheAnswer(t *testing.T) {
	internal := of(codes.Internal, pb.ReasonInternal, pb.ScopeItem)

	for _, test := range []struct {
		name, why string
		results   []provider.Result
		want      failure
		item      *pb.Error
	}{
		{name: "too few", why: "a missing result does not mean that the secret is absent", results: nil, want: internal},
		{name: "too many", why: "the results cannot be assigned to their reads", results: make([]provider.Result, 2), want: internal},
		{
			name: "larger than a message", why: "gRPC would fail the call without a reason",
			results: []provider.Result{{Value: make([]byte, 4<<20)}}, want: of(codes.ResourceExhausted, pb.ReasonTooLarge, pb.ScopeItem),
		},
		{
			name: "key that is no text", why: "a proto string must be UTF-8: one such key would fail the whole batch, as Internal",
			results: []provider.Result{{Map: map[string][]byte{"\xff": nil}}},
			item:    &pb.Error{Code: int32(codes.InvalidArgument), Reason: pb.ReasonInvalidRequest, Message: `the secret has a key that is not UTF-8: "\xff"`},
		},
		{
			name: "message that is no text", why: "likewise",
			results: []provider.Result{{Err: provider.NotFound("no \xff")}},
			item:    &pb.Error{Code: int32(codes.NotFound), Reason: pb.ReasonNotFound, Message: "no \uFFFD"},
		},
		{
			name: "revision that is no text", why: "a revision that cannot travel is none",
			results: []provider.Result{{Map: map[string][]byte{}, Revision: "\xff"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, &backend{read: func(context.Context, []provider.Read) []provider.Result { return test.results }}, Options{})
			wire := read("a")
			wire.Shape = pb.Shape_SHAPE_MAP

			if len(test.results) == 1 && test.results[0].Value != nil {
				wire.Shape = pb.Shape_SHAPE_VALUE
			}

			got, err := p.secrets.GetSecrets(p.context(), &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{wire}})
			if diff := cmp.Diff(test.want, failureOf(err)); diff != "" {
				t.Fatalf("%s: %v (-want +got):\n%s", test.why, err, diff)
			}

			if p.log.field("panic", "type") != "" {
				t.Errorf("%s: it was not checked, it panicked", test.why)
			}

			if err != nil {
				return
			}

			if diff := cmp.Diff(test.item, got.GetResults()[0].GetError(), protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}

			if got.GetResults()[0].GetRevision() != "" {
				t.Errorf("%s: revision %q", test.why, got.GetResults()[0].GetRevision())
			}
		})
	}
}

func TestPanics(t *testing.T) {
	internal := failure{Code: codes.Internal, Domain: pb.ErrorDomain, Reason: pb.ReasonInternal}

	for _, test := range []struct {
		name, why string
		backend   *backend
		call      func(*process) error
	}{
		{
			name: "read", why: "one tenant's odd secret must not end the process for all",
			backend: &backend{read: func(context.Context, []provider.Read) []provider.Result { panic(errors.New(canary)) }},
			call: func(p *process) error {
				_, err := p.read("a")

				return err
			},
		},
		{
			name: "validation", why: "likewise",
			backend: &backend{validate: func(context.Context) (provider.Validation, error) { panic(canary) }},
			call: func(p *process) error {
				_, err := p.secrets.Validate(p.context(), &pb.ValidateRequest{Context: callContext()})

				return err
			},
		},
		{
			name: "construction", why: "it runs in a goroutine of its own, that no interceptor guards",
			backend: &backend{construct: func(context.Context, provider.Environment) error { panic(canary) }},
			call: func(p *process) error {
				_, err := p.read("a")

				return err
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, test.backend, Options{})

			err := test.call(p)
			got := failureOf(err)
			got.Scope = ""

			if got != internal || strings.Contains(err.Error(), canary) {
				t.Errorf("%s: %v, %+v", test.why, err, got)
			}

			if _, err := p.info.GetInfo(p.context(), &pb.GetInfoRequest{}); err != nil {
				t.Errorf("%s: afterwards: %v", test.why, err)
			}

			await(t, "the panic is logged", func() bool { return p.log.field("panic", "type") != "" })

			if strings.Contains(p.log.String(), canary) {
				t.Errorf("%s: the log quotes the panic:\n%s", test.why, p.log)
			}

			if !strings.Contains(p.log.field("panic", "stack"), "wire_test.go") {
				t.Errorf("%s: the log does not say where:\n%s", test.why, p.log)
			}
		})
	}
}

// An expired login at the backend is renewed once.
func TestMakesARefusedStoreAnew(t *testing.T) {
	refusal := provider.Result{Err: provider.Unauthenticated("the token has expired")}

	for _, test := range []struct {
		name, why string
		// accepts says which of the stores, from 1, the backend accepts.
		accepts        func(store int) bool
		made, closings int
		fails          bool
	}{
		{name: "never refused", why: "a store that works is kept", accepts: func(int) bool { return true }, made: 1},
		{name: "refused later", why: "the renewed login must not be visible to the caller", accepts: func(n int) bool { return n != 1 }, made: 2, closings: 1},
		{
			name: "refused for good", why: "the second and the third call create a store each, and none creates two: a loop of logins would lock the account",
			accepts: func(int) bool { return false }, made: 3, closings: 3, fails: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var current, calls atomic.Int32

			b := &backend{construct: func(context.Context, provider.Environment) error {
				current.Add(1)

				return nil
			}}
			b.read = answer(func(provider.Read) provider.Result {
				// The first call of all finds its login good.
				if calls.Load() > 1 && !test.accepts(int(current.Load())) {
					return refusal
				}

				return provider.Result{Value: []byte("v")}
			})
			p := start(t, b, Options{})

			var err error

			for range 3 {
				calls.Add(1)

				_, err = p.read("a")
			}

			// A login that is refused concerns the store: the call fails.
			if failed := status.Code(err) == codes.Unauthenticated; failed != test.fails || (err != nil && !failed) {
				t.Errorf("%s: the last call got %v", test.why, err)
			}

			if made, _ := p.counts(); made != test.made {
				t.Errorf("%s: %d stores were created, not %d", test.why, made, test.made)
			}

			await(t, "the refused stores are closed", func() bool {
				_, closings := p.counts()

				return closings == test.closings
			})
		})
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name, why  string
		construct  error
		validation provider.Validation
		err        error
		change     func(*pb.CallContext)
		want       *pb.ValidateResponse
		failure    failure
	}{
		{
			name: "valid", why: "with what is worth knowing beside it",
			validation: provider.Validation{Message: "as user a", Warnings: []string{"plain HTTP"}},
			want:       &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_VALID, Message: "as user a", Warnings: []string{"plain HTTP"}},
		},
		{
			name: "unknown", why: "some backends can only be tried",
			validation: provider.Validation{Unknown: true, Message: "only a read shows it"},
			want:       &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_UNKNOWN, Message: "only a read shows it"},
		},
		{
			name: "invalid config", why: "a verdict is an answer, not a failed call",
			err:  provider.InvalidConfig("spec.server: no"),
			want: &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_INVALID, Message: "spec.server: no"},
		},
		{
			name: "invalid at construction", why: "most mistakes show there",
			construct: provider.InvalidConfig("spec.server: no"),
			want:      &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_INVALID, Message: "spec.server: no"},
		},
		{
			name: "refused login", why: "a wrong password is a wrong config",
			err:  provider.Unauthenticated("wrong password"),
			want: &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_INVALID, Message: "wrong password"},
		},
		{
			name: "denied", why: "likewise",
			err:  provider.AccessDenied("no right"),
			want: &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_INVALID, Message: "no right"},
		},
		{
			name: "backend away", why: "an outage is no verdict on the config: a store must not become invalid by it",
			err: provider.Unavailable("away"), failure: of(codes.Unavailable, pb.ReasonUnavailable, pb.ScopeStore),
		},
		{
			name: "untyped", why: "an unknown error is no verdict",
			err: errors.New("odd"), failure: of(codes.Unknown, pb.ReasonInternal, pb.ScopeItem),
		},
		{
			name: "config missing", why: "the verdict reports it",
			change: func(c *pb.CallContext) { c.Config.Name = "none" },
			want:   &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_INVALID, Message: `ConfigMap "none" does not exist in namespace "team-a"`},
		},
		{
			name: "credentials per manifest", why: "without a namespace nothing can be resolved, and nothing is tried",
			change: func(c *pb.CallContext) {
				c.Store.Kind, c.Store.Namespace, c.SourceNamespace, c.AuthenticationNamespace = "ClusterSecretStore", "", "", ""
			},
			construct: errors.New("a store was made"),
			want: &pb.ValidateResponse{
				Verdict: pb.ValidateResponse_VERDICT_UNKNOWN, Message: "credentials resolve in the namespace of each ExternalSecret: only a read shows whether they are valid",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, &backend{
				construct: func(context.Context, provider.Environment) error { return test.construct },
				validate:  func(context.Context) (provider.Validation, error) { return test.validation, test.err },
			}, Options{})

			call := callContext()
			if test.change != nil {
				test.change(call)
			}

			got, err := p.secrets.Validate(p.context(), &pb.ValidateRequest{Context: call})
			if diff := cmp.Diff(test.failure, failureOf(err)); diff != "" {
				t.Fatalf("%s (-want +got):\n%s", test.why, diff)
			}

			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

// A login that validation finds refused is not used for the next call.
func TestValidateDiscardsARefusedStore(t *testing.T) {
	p := start(t, &backend{validate: func(context.Context) (provider.Validation, error) {
		return provider.Validation{}, provider.Unauthenticated("the token has expired")
	}}, Options{})

	for range 2 {
		if _, err := p.secrets.Validate(p.context(), &pb.ValidateRequest{Context: callContext()}); err != nil {
			t.Fatal(err)
		}
	}

	if made, _ := p.counts(); made != 2 {
		t.Errorf("%d stores were created for two validations", made)
	}
}

func TestWhatIsNotServed(t *testing.T) {
	p := start(t, &backend{}, Options{})
	call := callContext()
	call.Config.Kind = "Secret"

	_, err := p.secrets.GetSecrets(p.context(), &pb.GetSecretsRequest{Context: call, Reads: []*pb.SecretRead{read("a")}})
	if diff := cmp.Diff(of(codes.Unimplemented, pb.ReasonUnsupported, pb.ScopeItem), failureOf(err)); diff != "" {
		t.Errorf("a kind that does not read (-want +got):\n%s", diff)
	}

	for name, err := range map[string]error{
		"push":   second(p.secrets.PushSecret(p.context(), &pb.PushSecretRequest{Context: call, Key: "a", Owner: "o"})),
		"delete": second(p.secrets.DeleteSecret(p.context(), &pb.DeleteSecretRequest{Context: call, Key: "a", Owner: "o"})),
		"exists": second(p.secrets.SecretExists(p.context(), &pb.SecretExistsRequest{Context: call, Key: "a"})),
		"watch":  watched(p, &pb.WatchRequest{Context: call}),
	} {
		if diff := cmp.Diff(of(codes.Unimplemented, pb.ReasonUnsupported, pb.ScopeItem), failureOf(err)); diff != "" {
			t.Errorf("%s of a kind that does not (-want +got):\n%s", name, diff)
		}
	}

	if _, err := pb.NewGeneratorClient(p.conn).Generate(p.context(), &pb.GenerateRequest{Context: callContext()}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a service that the provider does not serve: %v", err)
	}
}

// The caller's deadline reaches the store, and a caller that went away too.
func TestPassesTheDeadlineOn(t *testing.T) {
	ended, gaveUp := make(chan error, 1), make(chan struct{})
	p := start(t, &backend{read: func(ctx context.Context, reads []provider.Read) []provider.Result {
		<-ctx.Done()
		ended <- ctx.Err()

		// An answer now could still reach the caller before its own clock ends.
		<-gaveUp

		return make([]provider.Result, len(reads))
	}}, Options{})
	p.connect()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	_, err := p.secrets.GetSecrets(ctx, &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{read("a")}})
	close(gaveUp)

	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the caller got %v", err)
	}

	select {
	case err := <-ended:
		if err == nil {
			t.Error("the store's context ended without a reason")
		}
	case <-time.After(patience):
		t.Error("the store's context was not cancelled at the caller's deadline")
	}
}

// What a store answers after the call's end is no answer, and each read's
// failure is not that of its secret.
func TestAnswersNothingAfterTheDeadline(t *testing.T) {
	p := start(t, &backend{read: func(ctx context.Context, _ []provider.Read) []provider.Result {
		<-ctx.Done()

		return []provider.Result{{Err: ctx.Err()}}
	}}, Options{})
	p.connect()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	_, err := p.secrets.GetSecrets(ctx, &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{read("a")}})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the caller got %v", err)
	}

	var logged string

	await(t, "the call is logged", func() bool {
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, "SecretStore/GetSecrets") {
				logged = line
			}
		}

		return logged != ""
	})

	// Whose clock ends first is not ours.
	if !strings.Contains(logged, `"code":"DeadlineExceeded"`) && !strings.Contains(logged, `"code":"Canceled"`) {
		t.Errorf("the call was answered: %s", logged)
	}
}

func TestStopsInOrder(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	p := start(t, &backend{read: func(context.Context, []provider.Read) []provider.Result {
		close(begun)
		<-proceed

		return []provider.Result{{Value: []byte("finished")}}
	}}, Options{MetricsListen: "127.0.0.1:0", drain: 500 * time.Millisecond})

	// A balancer watches.
	watching, unwatch := context.WithCancel(p.context())
	defer unwatch()

	watch, err := healthpb.NewHealthClient(p.conn).Watch(watching, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}

	if first, err := watch.Recv(); err != nil || first.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health is %v, %v", first, err)
	}

	type answered struct {
		result *pb.SecretResult
		err    error
	}

	inFlight := make(chan answered, 1)

	go func() {
		result, err := p.read("a")
		inFlight <- answered{result, err}
	}()

	<-begun
	p.stop()

	if second, err := watch.Recv(); err != nil || second.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health after the signal is %v, %v", second, err)
	}

	unwatch()

	// Until balancers have seen that, calls that still come are served.
	state, err := p.info.GetStatus(p.context(), &pb.GetStatusRequest{})
	if err != nil || state.GetState() != pb.GetStatusResponse_STATE_FAILING || !strings.Contains(state.GetReason(), "shutting down") {
		t.Errorf("status while stopping: %v, %v", state, err)
	}

	if code, body := p.get("/readyz"); code != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("readiness while stopping: %d %s", code, body)
	}

	if code, _ := p.get("/healthz"); code != 200 {
		t.Errorf("liveness while stopping: %d: the kubelet would kill the process", code)
	}

	// The server sends GOAWAY on the connection; the call in flight continues.
	await(t, "the connection is left", func() bool { return p.conn.GetState() != connectivity.Ready })

	select {
	case err := <-p.done:
		t.Fatalf("serving ended with a call in flight: %v", err)
	default:
	}

	close(proceed)

	if got := <-inFlight; got.err != nil || string(got.result.GetValue()) != "finished" {
		t.Errorf("the call in flight got %v, %v", got.result, got.err)
	}

	select {
	case err := <-p.done:
		if err != nil {
			t.Errorf("serving ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("serving did not end")
	}

	if made, closings := p.counts(); made != 1 || closings != 1 {
		t.Errorf("of %d stores %d were closed", made, closings)
	}

	if served(t, p.address) {
		t.Error("the port is still served")
	}
}

// A call that never returns does not prevent the shutdown.
func TestStopsAfterTheGrace(t *testing.T) {
	begun := make(chan struct{})
	p := start(t, &backend{read: func(ctx context.Context, _ []provider.Read) []provider.Result {
		close(begun)
		<-ctx.Done()

		return []provider.Result{{Err: ctx.Err()}}
	}}, Options{Grace: 50 * time.Millisecond})

	failed := make(chan error, 1)

	go func() {
		_, err := p.read("a")
		failed <- err
	}()

	<-begun
	p.stop()

	if err := <-failed; status.Code(err) != codes.Unavailable {
		t.Errorf("the call got %v", err)
	}

	select {
	case err := <-p.done:
		if err != nil {
			t.Errorf("serving ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("serving did not end")
	}
}

// A secret's value and a credential pass through every path, with debug logs
// on; neither log nor metrics hold them, nor the keys.
func TestNothingIsWrittenDown(t *testing.T) {
	const key = "key-4c1d"

	mode := atomic.Int32{}
	b := &backend{}
	b.construct = func(ctx context.Context, env provider.Environment) error {
		token, err := env.References.SecretKey(ctx, metav1alpha1.SecretKeySelector{Name: "creds", Key: "token"})
		if err != nil || string(token) != canary {
			t.Errorf("the credential was read as %q, %v", token, err)
		}

		return nil
	}
	b.validate = func(context.Context) (provider.Validation, error) { return provider.Validation{Message: "fine"}, nil }
	b.read = func(_ context.Context, reads []provider.Read) []provider.Result {
		switch mode.Load() {
		case 1:
			panic(canary)
		case 2:
			return append(make([]provider.Result, 1), provider.Result{Value: []byte(canary)})
		case 3:
			return []provider.Result{{Err: provider.Unauthenticated("refused")}}
		case 4:
			return []provider.Result{{Map: map[string][]byte{"\xff" + canary: []byte(canary)}}}
		case 5:
			return []provider.Result{{Value: []byte(strings.Repeat(canary, 1<<20))}}
		}

		if reads[0].Shape == provider.Map {
			return []provider.Result{{Map: map[string][]byte{canary: []byte(canary)}, Revision: canary}}
		}

		return []provider.Result{{Value: []byte(canary), Revision: canary}}
	}
	p := start(t, b, Options{MetricsListen: "127.0.0.1:0"})

	for m := range int32(6) {
		mode.Store(m)

		for _, shape := range []pb.Shape{pb.Shape_SHAPE_VALUE, pb.Shape_SHAPE_MAP, pb.Shape_SHAPE_UNSPECIFIED} {
			_, _ = p.secrets.GetSecrets(p.context(), &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{
				{Id: key, Shape: shape, Key: key, Property: key, Version: key, KnownRevision: canary},
			}})
		}
	}

	_, _ = p.secrets.Validate(p.context(), &pb.ValidateRequest{Context: callContext()})
	_, _ = p.secrets.PushSecret(p.context(), &pb.PushSecretRequest{Context: callContext(), Key: key, Value: []byte(canary), Metadata: []byte(canary)})
	_, _ = pb.NewGeneratorClient(p.conn).Cleanup(p.context(), &pb.CleanupRequest{Context: callContext(), State: []byte(canary)})

	metrics := p.metrics()

	for _, line := range []string{
		`externalsecrets_provider_requests_total{code="OK",method="GetSecrets"}`,
		`externalsecrets_provider_requests_total{code="Internal",method="GetSecrets"}`,
		`externalsecrets_provider_request_duration_seconds_count{method="GetSecrets"}`,
		`externalsecrets_provider_tls_reloads_total 1`,
		`externalsecrets_provider_stores `,
		`externalsecrets_provider_certificate_expiry_timestamp_seconds `,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}

	p.stop()

	if err := <-p.done; err != nil {
		t.Errorf("serving ended with %v", err)
	}

	log := p.log.String()
	if n := strings.Count(log, `"msg":"call"`); n < 18 {
		t.Errorf("only %d calls were logged: the test proves little\n%s", n, log)
	}

	if !strings.Contains(log, `"requestID":"request-1"`) || !strings.Contains(log, `"store":"SecretStore/team-a/store"`) {
		t.Errorf("a call is logged without whose it is:\n%s", log)
	}

	for name, text := range map[string]string{"log": log, "metrics": metrics} {
		for _, hidden := range []string{canary, key} {
			if at := strings.Index(text, hidden); at >= 0 {
				t.Errorf("the %s holds %q: ...%s...", name, hidden, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
}
