package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

func generatorTests() []Test {
	needs := func(capabilities ...pb.Capability) Needs {
		return Needs{Capabilities: capabilities, Writes: true, Fixtures: []Fixture{FixtureGenerator}}
	}
	generate := needs(pb.Capability_CAPABILITY_GENERATE)
	both := needs(pb.Capability_CAPABILITY_GENERATE, pb.Capability_CAPABILITY_CLEANUP)

	return []Test{
		{ID: "generate.answers", Why: "A generated credential has at least one key, and each key occurs once.", Needs: generate, Run: generateAnswers},
		{ID: "generate.repeated-makes-one", Why: "An answer may be lost: the repeated call must not create a second credential that is never revoked.", Needs: generate, Run: generateRepeated},
		{ID: "generate.another-key-makes-another", Why: "Two idempotency keys must not share a credential: revoking one would revoke the other.", Needs: generate, Run: generateAnother},
		{ID: "generate.state-holds-no-value", Why: "The state is stored in the cluster and must not contain secret values.", Needs: generate, Run: stateHoldsNoValue},
		{ID: "generate.idempotency-key-is-needed", Why: "Without the key each repetition would create another credential.", Needs: generate, Run: generateKey},
		{ID: "cleanup.revokes", Why: "A credential is revoked by its state.", Needs: both, Run: func(ctx context.Context, t *T) {
			key, made := t.generate(ctx)
			t.cleanup(ctx, "Cleanup", t.cleaning(key, made.GetState()))
		}},
		{ID: "cleanup.repeated-is-no-error", Why: "A credential that is already revoked is the desired result.", Needs: both, Run: func(ctx context.Context, t *T) {
			key, made := t.generate(ctx)
			t.cleanup(ctx, "Cleanup", t.cleaning(key, made.GetState()))
			t.cleanup(ctx, "Cleanup once more", t.cleaning(key, made.GetState()))
		}},
		{ID: "cleanup.without-state", Why: "The answer of Generate may have been lost: the credential is then revoked by its idempotency key.", Needs: both, Run: func(ctx context.Context, t *T) {
			key, _ := t.generate(ctx)
			t.cleanup(ctx, "Cleanup without the state", t.cleaning(key, nil))
			t.cleanup(ctx, "Cleanup of what was never made", t.cleaning(t.key("never"), nil))
		}},
		{ID: "cleanup.without-config", Why: "A config may be deleted before the credentials that were generated with it are revoked.", Needs: both, Run: func(ctx context.Context, t *T) {
			key, made := t.generate(ctx)
			request := t.cleaning(key, made.GetState())
			request.Context.Config.Name, request.Context.Config.Uid = "conformance-is-gone", "conformance-is-gone"
			t.cleanup(ctx, "Cleanup with a config that was deleted", request)
		}},
	}
}

func (t *T) generator() pb.GeneratorClient { return pb.NewGeneratorClient(t.run.conn) }

// generating is the context of a generator's calls.
func (t *T) generating() *pb.CallContext {
	return t.with(func(c *pb.CallContext) {
		if config := t.target().Fixtures.Generator.Config; config != nil {
			c.Config = config.wire()
		}
	})
}

// generate makes a credential, whose values no error may hold.
func (t *T) generate(ctx context.Context) (key string, made *pb.GenerateResponse) {
	key = t.key("generated")
	made, err := t.generateAgain(ctx, key)
	t.must("Generate", err)

	return key, made
}

func (t *T) generateAgain(ctx context.Context, key string) (*pb.GenerateResponse, error) {
	made, err := t.generator().Generate(ctx, &pb.GenerateRequest{Context: t.generating(), IdempotencyKey: key})

	for _, entry := range made.GetEntries() {
		t.run.record.guard(string(entry.GetValue()))
	}

	return made, err
}

func (t *T) cleaning(key string, state []byte) *pb.CleanupRequest {
	request := &pb.CleanupRequest{Context: t.generating(), IdempotencyKey: key, State: state}

	if snapshot := t.target().Fixtures.Generator.ConfigSnapshot; snapshot != nil {
		text, err := json.Marshal(snapshot)
		if err == nil {
			request.ConfigSnapshot = text
		}
	}

	return request
}

func (t *T) cleanup(ctx context.Context, what string, request *pb.CleanupRequest) {
	if _, err := t.generator().Cleanup(ctx, request); err != nil {
		t.Errorf("%s: it failed with %s", what, described(err))
	}
}

func generateAnswers(ctx context.Context, t *T) {
	_, made := t.generate(ctx)

	if len(made.GetEntries()) == 0 {
		t.Errorf("Generate: the answer has no entry")
	}

	if keys := keysOf(made.GetEntries()); slices.Contains(keys, "") || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		t.Errorf("Generate: a key is empty, or there twice")
	}

	if expires := made.GetExpiresAt(); expires != nil && !expires.IsValid() {
		t.Errorf("Generate: expires_at is no time")
	}
}

func generateRepeated(ctx context.Context, t *T) {
	key, made := t.generate(ctx)

	again, err := t.generateAgain(ctx, key)
	if status.Code(err) == codes.Aborted {
		return
	}

	t.must("Generate once more with the same idempotency key", err)

	sorted := func(a, b *pb.SecretEntry) int { return strings.Compare(a.GetKey(), b.GetKey()) }
	slices.SortFunc(made.GetEntries(), sorted)
	slices.SortFunc(again.GetEntries(), sorted)

	if !slices.EqualFunc(made.GetEntries(), again.GetEntries(), func(a, b *pb.SecretEntry) bool { return proto.Equal(a, b) }) {
		t.Errorf("Generate once more with the same idempotency key: it created another credential, and did not fail with ABORTED")
	}
}

func generateAnother(ctx context.Context, t *T) {
	_, first := t.generate(ctx)
	_, second := t.generate(ctx)

	if proto.Equal(&pb.GenerateResponse{Entries: first.GetEntries()}, &pb.GenerateResponse{Entries: second.GetEntries()}) {
		t.Errorf("Generate with another idempotency key: it answered the same credential")
	}
}

func stateHoldsNoValue(ctx context.Context, t *T) {
	_, made := t.generate(ctx)

	for _, entry := range made.GetEntries() {
		if len(entry.GetValue()) >= minCanary && bytes.Contains(made.GetState(), entry.GetValue()) {
			t.Errorf("Generate: the state holds the value of %q", entry.GetKey())
		}
	}
}

func generateKey(ctx context.Context, t *T) {
	_, err := t.generator().Generate(ctx, &pb.GenerateRequest{Context: t.generating()})
	t.refused("Generate without an idempotency key", err, codes.InvalidArgument)
}
