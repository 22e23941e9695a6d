package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/kit"
	"github.com/external-secrets/eso/sdk/provider"
)

// tokens is a backend that issues tokens.
type tokens struct {
	// generate replaces the generation; nil issues a token.
	generate func(context.Context, provider.Generation) (provider.Generated, error)

	mu        sync.Mutex
	generated int
	// issued are the tokens that are valid, by state.
	issued map[string]string
	// lengths are those of the configs with which a cleanup was done.
	lengths []string
	cleaned []provider.Cleanup
}

// tokenGenerator generates tokens that can be revoked. Its config is a ConfigMap.
type tokenGenerator struct {
	tokens *tokens
	length string
}

var _ provider.Cleaner = (*tokenGenerator)(nil)

func (g *tokenGenerator) Generate(ctx context.Context, generation provider.Generation) (provider.Generated, error) {
	g.tokens.mu.Lock()
	g.tokens.generated++
	g.tokens.mu.Unlock()

	if g.tokens.generate != nil {
		return g.tokens.generate(ctx, generation)
	}

	g.tokens.mu.Lock()
	defer g.tokens.mu.Unlock()

	id := fmt.Sprintf("id-%d", g.tokens.generated)
	g.tokens.issued[id] = "token-" + generation.IdempotencyKey + "-" + id

	return provider.Generated{Values: map[string][]byte{"token": []byte(g.tokens.issued[id])}, State: []byte(id), ExpiresAt: time.Unix(4_000_000_000, 0)}, nil
}

func (g *tokenGenerator) Cleanup(_ context.Context, cleanup provider.Cleanup) error {
	g.tokens.mu.Lock()
	defer g.tokens.mu.Unlock()

	g.tokens.cleaned, g.tokens.lengths = append(g.tokens.cleaned, cleanup), append(g.tokens.lengths, g.length)
	delete(g.tokens.issued, string(cleanup.State))

	return nil
}

func (g *tokenGenerator) Close(context.Context) error { return nil }

// passwordGenerator generates values that nothing can revoke. Its config is a
// Secret.
type passwordGenerator struct{}

func (passwordGenerator) Generate(context.Context, provider.Generation) (provider.Generated, error) {
	return provider.Generated{Values: map[string][]byte{"password": []byte("p")}}, nil
}

func (passwordGenerator) Close(context.Context) error { return nil }

func (b *tokens) provider() provider.Provider {
	b.issued = map[string]string{}

	return provider.Provider{Name: "tokens", Version: "1.2.3", Kinds: []provider.Kind{
		provider.GeneratorKind(corev1.AddToScheme, func(_ context.Context, _ provider.Environment, config *corev1.ConfigMap) (*tokenGenerator, error) {
			return &tokenGenerator{tokens: b, length: config.Data["length"]}, nil
		}),
		provider.GeneratorKind(corev1.AddToScheme, func(context.Context, provider.Environment, *corev1.Secret) (passwordGenerator, error) {
			return passwordGenerator{}, nil
		}),
	}}
}

// clients of a provider that generates.
type clients struct {
	pb.ProviderInfoClient
	pb.GeneratorClient
	pb.SecretStoreClient
}

func (b *tokens) serve(t *testing.T) clients {
	t.Helper()

	conn := serveInMemory(t, NewMemoryListener(), b.provider(), Options{PeerIdentity: pb.OperatorIdentity, Grace: patience}, insecure.NewCredentials())

	return clients{pb.NewProviderInfoClient(conn), pb.NewGeneratorClient(conn), pb.NewSecretStoreClient(conn)}
}

func (b *tokens) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.generated
}

func generating(key string, changes ...func(*pb.CallContext)) *pb.GenerateRequest {
	call := callContext()
	call.Store.Kind = "Generator"

	for _, change := range changes {
		change(call)
	}

	return &pb.GenerateRequest{Context: call, IdempotencyKey: key}
}

func TestGeneratorsAreListed(t *testing.T) {
	t.Parallel()

	info, err := (&tokens{}).serve(t).GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}

	want := []*pb.Kind{
		{ApiVersion: "v1", Kind: "ConfigMap", Service: pb.Service_SERVICE_GENERATOR, Capabilities: []pb.Capability{pb.Capability_CAPABILITY_GENERATE, pb.Capability_CAPABILITY_CLEANUP}},
		{ApiVersion: "v1", Kind: "Secret", Service: pb.Service_SERVICE_GENERATOR, Capabilities: []pb.Capability{pb.Capability_CAPABILITY_GENERATE}},
	}
	if diff := cmp.Diff(want, info.GetKinds(), protocmp.Transform()); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

// One intent to generate creates one credential, however often and by how many
// callers it is repeated.
func TestGenerateIsIdempotent(t *testing.T) {
	t.Parallel()

	b := &tokens{}
	c := b.serve(t)

	first, err := c.Generate(t.Context(), generating("key"))
	if err != nil {
		t.Fatal(err)
	}

	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if again, err := c.Generate(t.Context(), generating("key")); err != nil || cmp.Diff(first, again, protocmp.Transform()) != "" {
				t.Errorf("repeated: %v, %v", again, err)
			}
		})
	}

	wait.Wait()

	if calls := b.calls(); calls != 1 {
		t.Errorf("%d credentials were created", calls)
	}

	for why, change := range map[string]func(*pb.CallContext){
		"another namespace": func(c *pb.CallContext) {
			c.Store.Kind, c.Store.Namespace, c.SourceNamespace = "ClusterGenerator", "", "team-b"
		},
		"another key": func(*pb.CallContext) {},
	} {
		key := "key"
		if why == "another key" {
			key = "another"
		}

		if other, err := c.Generate(t.Context(), generating(key, change)); err != nil || bytes.Equal(other.GetState(), first.GetState()) {
			t.Errorf("%s: the credential is shared: %v", why, err)
		}
	}
}

// The credential that a caller no longer waits for is there when it comes back.
func TestGenerateOutlivesItsCaller(t *testing.T) {
	t.Parallel()

	started, proceed := make(chan struct{}), make(chan struct{})
	b := &tokens{generate: func(ctx context.Context, _ provider.Generation) (provider.Generated, error) {
		close(started)
		<-proceed

		return provider.Generated{Values: map[string][]byte{"a": []byte("b")}}, ctx.Err()
	}}
	c := b.serve(t)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)

	go func() {
		_, err := c.Generate(ctx, generating("key"))
		ended <- err
	}()

	<-started
	cancel()

	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("the caller gave up and got %v", err)
	}

	// Nothing could be revoked yet, and what is created later would never be.
	early := generating("key")
	if _, err := c.Cleanup(t.Context(), &pb.CleanupRequest{Context: early.GetContext(), IdempotencyKey: early.GetIdempotencyKey()}); status.Code(err) != codes.Unavailable {
		t.Errorf("a cleanup while the credential is being generated: %v", err)
	}

	close(proceed)

	if again, err := c.Generate(t.Context(), generating("key")); err != nil || len(again.GetEntries()) != 1 || b.calls() != 1 {
		t.Errorf("the second call: %v, %v, after %d generations", again, err, b.calls())
	}
}

func TestGenerateFails(t *testing.T) {
	t.Parallel()

	value := map[string][]byte{"a": []byte("b")}
	generated := func(generated provider.Generated, err error) func(context.Context, provider.Generation) (provider.Generated, error) {
		return func(context.Context, provider.Generation) (provider.Generated, error) { return generated, err }
	}

	for _, test := range []struct {
		name, why string
		generate  func(context.Context, provider.Generation) (provider.Generated, error)
		request   *pb.GenerateRequest
		want      failure
	}{
		{name: "backend", why: "the backend's error crosses the wire", generate: generated(provider.Generated{}, provider.Unavailable("away")), want: of(codes.Unavailable, pb.ReasonUnavailable, pb.ScopeStore)},
		{name: "lost", why: "a key of an earlier process whose credential cannot be returned", generate: generated(provider.Generated{}, provider.ResultLost("gone")), want: of(codes.Aborted, pb.ReasonResultLost, pb.ScopeItem)},
		{name: "panic", why: "it runs in a goroutine of its own, and must not end the process", generate: func(context.Context, provider.Generation) (provider.Generated, error) { panic(errors.New(canary)) }, want: of(codes.Internal, pb.ReasonInternal, pb.ScopeItem)},
		{name: "nothing", why: "a credential without a value makes no target", generate: generated(provider.Generated{}, nil), want: of(codes.Internal, pb.ReasonInternal, pb.ScopeItem)},
		{name: "key that is no text", why: "the whole answer could not be sent", generate: generated(provider.Generated{Values: map[string][]byte{"\xff": nil}}, nil), want: of(codes.Internal, pb.ReasonInternal, pb.ScopeItem)},
		{name: "large value", why: "a Secret could not hold it", generate: generated(provider.Generated{Values: map[string][]byte{"a": make([]byte, maxGeneratedBytes)}}, nil), want: of(codes.ResourceExhausted, pb.ReasonTooLarge, pb.ScopeItem)},
		{name: "large state", why: "the object that records it could not hold it", generate: generated(provider.Generated{Values: value, State: make([]byte, maxStateBytes+1)}, nil), want: of(codes.ResourceExhausted, pb.ReasonTooLarge, pb.ScopeItem)},
		{name: "no key", why: "each repetition would create another credential", request: generating(""), want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)},
		{name: "long key", why: "keys are kept", request: generating(string(make([]byte, maxIdempotencyKey+1))), want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)},
		{name: "no request id", why: "contexts are checked as those of stores", request: generating("k", func(c *pb.CallContext) { c.RequestId = "" }), want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)},
		{name: "no source", why: "a credential is generated for an object", request: generating("k", func(c *pb.CallContext) { c.SourceNamespace = "" }), want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)},
		{name: "unknown kind", why: "its namespaces could not be checked", request: generating("k", func(c *pb.CallContext) { c.Store.Kind = "Pod" }), want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)},
		{name: "foreign namespace", why: "a Generator stays in its namespace", request: generating("k", func(c *pb.CallContext) { c.SourceNamespace = "team-b" }), want: of(codes.PermissionDenied, pb.ReasonReferenceDenied, pb.ScopeStore)},
		{
			name: "foreign authentication", why: "a ClusterGenerator authenticates in its config's namespace or its user's", request: generating("k", func(c *pb.CallContext) {
				c.Store.Kind, c.Store.Namespace, c.AuthenticationNamespace = "ClusterGenerator", "", "team-c"
			}), want: of(codes.PermissionDenied, pb.ReasonReferenceDenied, pb.ScopeStore),
		},
		{name: "unknown config", why: "the provider does not serve it", request: generating("k", func(c *pb.CallContext) { c.Config.Kind = "Other" }), want: of(codes.FailedPrecondition, pb.ReasonInvalidConfig, pb.ScopeStore)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			b := &tokens{generate: test.generate}
			c := b.serve(t)

			request := test.request
			if request == nil {
				request = generating("key")
			}

			if _, err := c.Generate(t.Context(), request); failureOf(err) != test.want {
				t.Errorf("%s: %v", test.why, err)
			}

			if test.generate == nil && b.calls() > 0 {
				t.Errorf("%s: a credential was created", test.why)
			}

			// An error is not cached: the next call retries.
			if calls := b.calls(); test.generate != nil {
				if _, err := c.Generate(t.Context(), request); failureOf(err) != test.want || b.calls() != calls+1 {
					t.Errorf("%s: repeated: %v, after %d calls", test.why, err, b.calls())
				}
			}
		})
	}
}

func TestCleanup(t *testing.T) {
	t.Parallel()

	snapshot, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "kube-system", "name": "x"}, "data": map[string]string{"length": "32"}})
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name, why string
		change    func(*pb.CleanupRequest)
		length    string
		state     string
		want      failure
	}{
		{name: "with its state", why: "what was created is revoked", state: "id-1"},
		{name: "without state", why: "the state of a key that is kept is known", change: func(r *pb.CleanupRequest) { r.State = nil }, state: "id-1"},
		{
			name: "config does not exist", why: "configs are deleted before their credentials are revoked",
			change: func(r *pb.CleanupRequest) {
				r.Context.Config.Name, r.Context.Config.Uid, r.ConfigSnapshot = "gone", "gone", snapshot
			},
			state: "id-1", length: "32",
		},
		{name: "never generated", why: "the key of an intent may have led to nothing", change: func(r *pb.CleanupRequest) { r.IdempotencyKey, r.State = "never", nil }},
		{
			name: "no config and no snapshot", why: "there is no config to authenticate with",
			change: func(r *pb.CleanupRequest) { r.Context.Config.Name = "gone" }, want: of(codes.FailedPrecondition, pb.ReasonInvalidConfig, pb.ScopeStore),
		},
		{
			name: "snapshot of another kind", why: "it is decoded as nothing else",
			change: func(r *pb.CleanupRequest) { r.ConfigSnapshot = []byte(`{"apiVersion":"v1","kind":"Secret"}`) }, want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem),
		},
		{
			name: "snapshot that is no object", why: "its text is not quoted",
			change: func(r *pb.CleanupRequest) { r.ConfigSnapshot = []byte(canary) }, want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem),
		},
		{name: "large snapshot", why: "an object of the cluster is smaller", change: func(r *pb.CleanupRequest) { r.ConfigSnapshot = make([]byte, 256<<10+1) }, want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)},
		{name: "large state", why: "no Generate returned it", change: func(r *pb.CleanupRequest) { r.State = make([]byte, maxStateBytes+1) }, want: of(codes.ResourceExhausted, pb.ReasonTooLarge, pb.ScopeItem)},
		{name: "no key", why: "there is no intent to clean up", change: func(r *pb.CleanupRequest) { r.IdempotencyKey = "" }, want: of(codes.InvalidArgument, pb.ReasonInvalidRequest, pb.ScopeItem)},
		{name: "foreign namespace", why: "the context is checked", change: func(r *pb.CleanupRequest) { r.Context.SourceNamespace = "team-b" }, want: of(codes.PermissionDenied, pb.ReasonReferenceDenied, pb.ScopeStore)},
		{name: "kind without Cleanup", why: "nothing would be revoked", change: func(r *pb.CleanupRequest) { r.Context.Config.Kind = "Secret" }, want: of(codes.Unimplemented, pb.ReasonUnsupported, pb.ScopeItem)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			b := &tokens{}
			c := b.serve(t)

			made, err := c.Generate(t.Context(), generating("key"))
			if err != nil {
				t.Fatal(err)
			}

			request := &pb.CleanupRequest{Context: generating("key").GetContext(), IdempotencyKey: "key", State: made.GetState()}
			if test.change != nil {
				test.change(request)
			}

			_, err = c.Cleanup(t.Context(), request)
			if want := test.want; want != (failure{}) {
				if failureOf(err) != want || len(b.cleaned) > 0 {
					t.Errorf("%s: %v, %d cleanups", test.why, err, len(b.cleaned))
				}

				return
			}

			want := []provider.Cleanup{{IdempotencyKey: request.GetIdempotencyKey(), State: []byte(test.state)}}
			if test.state == "" {
				want[0].State = nil
			}

			if diff := cmp.Diff(want, b.cleaned); err != nil || diff != "" || b.lengths[0] != test.length {
				t.Errorf("%s: %v, config %q (-want +got):\n%s", test.why, err, b.lengths, diff)
			}

			// The key of a revoked credential returns it no more.
			if request.GetContext().GetConfig().GetName() == "backend" {
				if _, err := c.Generate(t.Context(), generating(request.GetIdempotencyKey())); failureOf(err) != of(codes.Aborted, pb.ReasonResultLost, pb.ScopeItem) {
					t.Errorf("%s: generated again: %v", test.why, err)
				}
			}
		})
	}
}

// Neither kind of call serves the other's configs.
func TestStoresAndGeneratorsAreDistinct(t *testing.T) {
	t.Parallel()

	c := (&tokens{}).serve(t)

	if _, err := c.GetSecrets(t.Context(), &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{read("a")}}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a read through a generator's config: %v", err)
	}

	if _, err := c.Validate(t.Context(), &pb.ValidateRequest{Context: callContext()}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a validation of a generator's config: %v", err)
	}

	p := start(t, &backend{}, Options{})

	if _, err := pb.NewGeneratorClient(p.conn).Generate(p.context(), generating("k")); status.Code(err) != codes.Unimplemented {
		t.Errorf("a generation by a provider without generators: %v", err)
	}
}

// A generator that is served by the SDK keeps the protocol.
func TestGeneratorConforms(t *testing.T) {
	t.Parallel()

	listener := NewMemoryListener()
	serveInMemory(t, listener, (&tokens{}).provider(), Options{PeerIdentity: pb.OperatorIdentity, Grace: patience}, insecure.NewCredentials())

	report, err := kit.Run(t.Context(), kit.Target{
		Profile: kit.Full,
		Config:  kit.ConfigReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "team-a", Name: "backend", UID: "config-uid", Generation: 1},
		Fixtures: kit.Fixtures{Generator: &kit.Generation{
			ConfigSnapshot: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"length": "32"}},
		}},
	}, kit.Options{Dial: listener.DialContext})
	if err != nil {
		t.Fatal(err)
	}

	passed := map[string]bool{}

	for _, result := range report.Tests {
		passed[result.ID] = result.Outcome == kit.Pass

		if result.Outcome == kit.Fail {
			t.Errorf("%s: %s", result.ID, result.Message)
		}
	}

	for _, id := range []string{
		"generate.answers", "generate.repeated-makes-one", "generate.another-key-makes-another", "generate.state-holds-no-value", "generate.idempotency-key-is-needed",
		"cleanup.revokes", "cleanup.repeated-is-no-error", "cleanup.without-state", "cleanup.without-config",
	} {
		if !passed[id] {
			t.Errorf("%s did not pass", id)
		}
	}
}
