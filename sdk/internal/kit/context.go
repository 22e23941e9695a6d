package kit

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

const elsewhere = "conformance-elsewhere"

func contextTests() []Test {
	read := Needs{Capabilities: []pb.Capability{pb.Capability_CAPABILITY_READ}}

	return []Test{
		{ID: "context.store-stays-in-its-namespace", Why: "Otherwise the users of one namespace could read secrets with the credentials of another namespace.", Needs: Needs{Store: true}, Run: storeStays},
		{ID: "context.cluster-store-authenticates-where-it-may", Why: "A ClusterSecretStore uses the credentials of its config's namespace or of the consuming namespace, and no others.", Needs: Needs{Store: true}, Run: clusterStoreStays},
		{ID: "context.is-complete", Why: "Providers use the call context as a cache key: a missing part would mix up two callers.", Needs: Needs{Store: true}, Run: contextIsComplete},
		{ID: "context.store-kind-is-known", Why: "The store kind determines which combinations of namespaces are allowed.", Needs: Needs{Store: true}, Run: storeKindIsKnown},
		{ID: "context.use-is-on-behalf-of-a-namespace", Why: "Only Validate may omit the source namespace.", Needs: read, Run: useIsOnBehalf},
		{ID: "context.config-uid-is-checked", Why: "A config that was deleted and created again is a different object.", Needs: read, Run: uidIsChecked},
		{ID: "context.config-generation-is-awaited", Why: "A provider whose cache does not contain the requested generation yet must not use an older one.", Needs: read, Run: generationIsAwaited},
		{ID: "context.config-kind-is-known", Why: "An unsupported kind must not result in NOT_FOUND, which means that the secret does not exist.", Needs: read, Run: kindIsKnown},
	}
}

// everywhere makes a call of each capability that the kind claims, and of
// Validate, with changed contexts, and checks that each is refused.
func (t *T) everywhere(ctx context.Context, what string, change func(*pb.CallContext), want ...codes.Code) {
	_, err := t.store().Validate(ctx, &pb.ValidateRequest{Context: t.with(func(c *pb.CallContext) {
		c.SourceNamespace = ""
		change(c)
	})})
	t.refused("Validate: "+what, err, want...)

	for _, capability := range capabilities() {
		if generates(capability) || !t.claims(capability) || t.run.broken[capability] || (writes(capability) && !t.writable()) {
			continue
		}

		t.refused(short(capability)+": "+what, t.attempt(ctx, capability, t.with(change)), want...)
	}
}

// asSecretStore makes the context that of a SecretStore in its place.
func asSecretStore(c *pb.CallContext) {
	namespace := c.GetConfig().GetNamespace()
	c.Store = &pb.StoreReference{Kind: kindSecretStore, Namespace: namespace, Name: "conformance", Uid: "conformance", Generation: 1}
	c.AuthenticationNamespace = namespace

	if c.GetSourceNamespace() != "" {
		c.SourceNamespace = namespace
	}
}

func storeStays(ctx context.Context, t *T) {
	for _, test := range []struct {
		what   string
		change func(*pb.CallContext)
	}{
		{"a SecretStore serves another namespace", func(c *pb.CallContext) { c.SourceNamespace = elsewhere }},
		{"a SecretStore authenticates in another namespace", func(c *pb.CallContext) { c.AuthenticationNamespace = elsewhere }},
		{"a SecretStore uses the config of another namespace", func(c *pb.CallContext) {
			c.Store.Namespace, c.AuthenticationNamespace = elsewhere, elsewhere
			if c.GetSourceNamespace() != "" {
				c.SourceNamespace = elsewhere
			}
		}},
		{"a SecretStore without a namespace", func(c *pb.CallContext) { c.Store.Namespace = "" }},
	} {
		t.everywhere(ctx, test.what, func(c *pb.CallContext) {
			asSecretStore(c)
			test.change(c)
		}, codes.PermissionDenied)
	}
}

func clusterStoreStays(ctx context.Context, t *T) {
	cluster := func(c *pb.CallContext) {
		asSecretStore(c)
		c.Store.Kind, c.Store.Namespace = kindClusterSecretStore, ""
	}

	t.everywhere(ctx, "a ClusterSecretStore authenticates in a third namespace", func(c *pb.CallContext) {
		cluster(c)
		c.AuthenticationNamespace = elsewhere
	}, codes.PermissionDenied)
	t.everywhere(ctx, "a ClusterSecretStore with a namespace", func(c *pb.CallContext) {
		cluster(c)
		c.Store.Namespace = c.GetConfig().GetNamespace()
	}, codes.PermissionDenied)
}

func contextIsComplete(ctx context.Context, t *T) {
	for _, test := range []struct {
		field  string
		change func(*pb.CallContext)
	}{
		{"request_id", func(c *pb.CallContext) { c.RequestId = "" }},
		{"store", func(c *pb.CallContext) { c.Store = nil }},
		{"store.name", func(c *pb.CallContext) { c.Store.Name = "" }},
		{"store.uid", func(c *pb.CallContext) { c.Store.Uid = "" }},
		{"config", func(c *pb.CallContext) { c.Config = nil }},
		{"config.api_version", func(c *pb.CallContext) { c.Config.ApiVersion = "" }},
		{"config.kind", func(c *pb.CallContext) { c.Config.Kind = "" }},
		{"config.namespace", func(c *pb.CallContext) { c.Config.Namespace = "" }},
		{"config.name", func(c *pb.CallContext) { c.Config.Name = "" }},
		{"config.uid", func(c *pb.CallContext) { c.Config.Uid = "" }},
	} {
		t.everywhere(ctx, fmt.Sprintf("context.%s is missing", test.field), test.change, codes.InvalidArgument)
	}
}

func storeKindIsKnown(ctx context.Context, t *T) {
	t.everywhere(ctx, "the store is of no known kind", func(c *pb.CallContext) { c.Store.Kind = "Store" }, codes.InvalidArgument)
}

func useIsOnBehalf(ctx context.Context, t *T) {
	err := t.attempt(ctx, pb.Capability_CAPABILITY_READ, t.with(func(c *pb.CallContext) { c.SourceNamespace = "" }))
	t.refused("a read without a source namespace", err, codes.InvalidArgument)
}

func uidIsChecked(ctx context.Context, t *T) {
	err := t.attempt(ctx, pb.Capability_CAPABILITY_READ, t.with(func(c *pb.CallContext) { c.Config.Uid = "conformance-of-another-object" }))
	t.refused("a read with the uid of another config", err, codes.Unavailable, codes.FailedPrecondition)
}

func generationIsAwaited(ctx context.Context, t *T) {
	err := t.attempt(ctx, pb.Capability_CAPABILITY_READ, t.with(func(c *pb.CallContext) { c.Config.Generation += 1 << 20 }))
	t.refused("a read with a config that is not there yet", err, codes.Unavailable)
	t.because("a read with a config that is not there yet", err, pb.ReasonConfigOutdated)
}

func kindIsKnown(ctx context.Context, t *T) {
	err := t.attempt(ctx, pb.Capability_CAPABILITY_READ, t.with(func(c *pb.CallContext) { c.Config.Kind = "ConformanceUnknown" }))
	t.refused("a read with a config of an unknown kind", err, codes.FailedPrecondition, codes.InvalidArgument, codes.Unimplemented)
}

func validateTests() []Test {
	return []Test{
		{ID: "validate.valid", Why: "A store becomes ready when its config is valid.", Needs: Needs{Store: true}, Run: func(ctx context.Context, t *T) {
			answer, err := t.validate(ctx, func(*pb.CallContext) {})
			t.must("Validate of the target's config", err)

			if verdict := answer.GetVerdict(); verdict != pb.ValidateResponse_VERDICT_VALID && verdict != pb.ValidateResponse_VERDICT_UNKNOWN {
				t.Errorf("Validate of the target's config: the verdict is %s", verdict)
			}
		}},
		{ID: "validate.repeated", Why: "Validate is idempotent.", Needs: Needs{Store: true}, Run: func(ctx context.Context, t *T) {
			first, err := t.validate(ctx, func(*pb.CallContext) {})
			t.must("Validate", err)

			again, err := t.validate(ctx, func(*pb.CallContext) {})
			t.must("Validate once more", err)

			if first.GetVerdict() != again.GetVerdict() {
				t.Errorf("Validate: the verdict is %s, then %s", first.GetVerdict(), again.GetVerdict())
			}
		}},
		{
			ID: "validate.invalid", Why: "The message must describe what is wrong with the config.", Needs: Needs{Store: true, Fixtures: []Fixture{FixtureInvalidConfig}},
			Run: func(ctx context.Context, t *T) {
				answer, err := t.validate(ctx, func(c *pb.CallContext) { c.Config = t.target().Fixtures.InvalidConfig.wire() })
				t.must("Validate of fixtures.invalidConfig", err)
				t.invalid("Validate of fixtures.invalidConfig", answer)
			},
		},
		{ID: "validate.config-that-does-not-exist", Why: "A store whose config does not exist is not ready.", Needs: Needs{Store: true}, Run: func(ctx context.Context, t *T) {
			const what = "Validate of a config that does not exist"

			answer, err := t.validate(ctx, func(c *pb.CallContext) {
				c.Config.Name, c.Config.Uid = "conformance-does-not-exist", "conformance-does-not-exist"
			})
			if err != nil {
				t.refused(what, err, codes.FailedPrecondition, codes.Unavailable)

				return
			}

			t.invalid(what, answer)
		}},
	}
}

func (t *T) validate(ctx context.Context, change func(*pb.CallContext)) (*pb.ValidateResponse, error) {
	return t.store().Validate(ctx, &pb.ValidateRequest{Context: t.with(func(c *pb.CallContext) {
		c.SourceNamespace = ""
		change(c)
	})})
}

func (t *T) invalid(what string, answer *pb.ValidateResponse) {
	if verdict := answer.GetVerdict(); verdict != pb.ValidateResponse_VERDICT_INVALID {
		t.Errorf("%s: the verdict is %s, not VERDICT_INVALID", what, verdict)
	} else if answer.GetMessage() == "" {
		t.Errorf("%s: VERDICT_INVALID comes without a message", what)
	}
}
