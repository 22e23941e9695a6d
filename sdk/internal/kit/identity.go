package kit

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// minMessage is the size that a provider must at least accept and send: a
// Kubernetes Secret holds 1 MiB.
const minMessage = 1 << 20

func identityTests() []Test {
	return []Test{
		{ID: "identity.info-is-well-formed", Why: "The operator rejects a provider that does not report its name, version and kinds.", Run: infoIsWellFormed},
		{ID: "identity.kinds-are-well-formed", Why: "A kind that is listed twice, or whose capabilities belong to another service, cannot be routed.", Run: kindsAreWellFormed},
		{ID: "identity.limits-are-usable", Why: "A limit below the size of a Secret makes large secrets unreadable.", Run: limitsAreUsable},
		{ID: "identity.info-is-stable", Why: "The operator calls GetInfo once per connection and relies on the answer.", Run: infoIsStable},
	}
}

func infoIsWellFormed(_ context.Context, t *T) {
	info := t.run.info

	if info.GetName() == "" {
		t.Errorf("GetInfo: name is empty")
	}

	if info.GetVersion() == "" {
		t.Errorf("GetInfo: version is empty")
	}

	if !slices.Contains(info.GetProtocolVersions(), pb.ProtocolVersion) {
		t.Errorf("GetInfo: protocol_versions does not name %s", pb.ProtocolVersion)
	}

	for i, feature := range info.GetFeatures() {
		if feature == "" || slices.Contains(info.GetFeatures()[:i], feature) {
			t.Errorf("GetInfo: features[%d] is empty, or there twice", i)
		}
	}
}

func kindsAreWellFormed(_ context.Context, t *T) {
	seen := map[string]bool{}

	for i, kind := range t.run.info.GetKinds() {
		id := kind.GetApiVersion() + "/" + kind.GetKind()

		switch {
		case strings.Count(kind.GetApiVersion(), "/") > 1 || kind.GetApiVersion() == "" || kind.GetKind() == "":
			t.Errorf("GetInfo: kinds[%d] has no api_version as in group/version, or no kind", i)
		case seen[id]:
			t.Errorf("GetInfo: kinds[%d] is %s, which was named before", i, id)
		}

		seen[id] = true

		if kind.GetService() != pb.Service_SERVICE_SECRET_STORE && kind.GetService() != pb.Service_SERVICE_GENERATOR {
			t.Errorf("GetInfo: kinds[%d].service is %s", i, kind.GetService())
		}

		for j, capability := range kind.GetCapabilities() {
			switch {
			case capability == pb.Capability_CAPABILITY_UNSPECIFIED:
				t.Errorf("GetInfo: kinds[%d].capabilities[%d] is unspecified", i, j)
			case slices.Contains(kind.GetCapabilities()[:j], capability):
				t.Errorf("GetInfo: kinds[%d] names %s twice", i, short(capability))
			// What a newer protocol adds is not known here.
			case slices.Contains(capabilities(), capability) && generates(capability) != (kind.GetService() == pb.Service_SERVICE_GENERATOR):
				t.Errorf("GetInfo: kinds[%d] names %s, which is not of its service", i, short(capability))
			}
		}
	}
}

func limitsAreUsable(_ context.Context, t *T) {
	if limit := t.run.info.GetLimits().GetMaxMessageBytes(); limit != 0 && limit < minMessage {
		t.Errorf("GetInfo: limits.max_message_bytes is %d, less than %d", limit, minMessage)
	}
}

func infoIsStable(ctx context.Context, t *T) {
	for i := range 3 {
		again, err := pb.NewProviderInfoClient(t.run.conn).GetInfo(ctx, &pb.GetInfoRequest{})
		t.must("GetInfo", err)

		if !proto.Equal(t.run.info, again) {
			t.Fatalf("GetInfo: answer %d differs from the first", i+2)
		}
	}
}

// capabilities that this version of the protocol knows.
func capabilities() []pb.Capability {
	return []pb.Capability{
		pb.Capability_CAPABILITY_READ, pb.Capability_CAPABILITY_FIND, pb.Capability_CAPABILITY_PUSH, pb.Capability_CAPABILITY_DELETE,
		pb.Capability_CAPABILITY_EXISTS, pb.Capability_CAPABILITY_WATCH, pb.Capability_CAPABILITY_GENERATE, pb.Capability_CAPABILITY_CLEANUP,
	}
}

// writes reports whether calls of a capability change the backend.
func writes(capability pb.Capability) bool {
	return capability == pb.Capability_CAPABILITY_PUSH || capability == pb.Capability_CAPABILITY_DELETE || generates(capability)
}

// claimTests check each capability against the answer of GetInfo.
func claimTests() []Test {
	var tests []Test

	for _, capability := range capabilities() {
		tests = append(tests,
			Test{
				ID: "claims." + lower(capability) + "-is-served", Why: "The operator relies on a claimed capability and lists it in the status of stores.",
				Needs: Needs{Capabilities: []pb.Capability{capability}, Writes: writes(capability)},
				Run: func(ctx context.Context, t *T) {
					// The call is invalid on purpose: any status but UNIMPLEMENTED
					// shows that the method is implemented.
					if err := t.attempt(ctx, capability, t.with(func(c *pb.CallContext) { c.Store = nil })); status.Code(err) == codes.Unimplemented {
						t.run.broken[capability] = true
						t.Errorf("the kind claims %s, and its call fails with UNIMPLEMENTED", short(capability))
					}
				},
			},
			Test{
				ID: "claims." + lower(capability) + "-unclaimed-is-unimplemented", Why: "The operator never calls a capability that is not claimed, so claiming it must be deliberate.",
				Needs: Needs{Writes: writes(capability)},
				Run: func(ctx context.Context, t *T) {
					if t.claims(capability) {
						t.Skip("the provider claims %s", short(capability))
					}

					t.refused("a call of what is not claimed", t.attempt(ctx, capability, t.call()), codes.Unimplemented)
				},
			})
	}

	const watch = pb.Capability_CAPABILITY_WATCH

	return append(tests, Test{
		ID: "claims.watch-absent-is-unimplemented", Why: "UNIMPLEMENTED makes the operator fall back to the refresh interval; with any other code it would retry the watch.",
		Needs: Needs{Absent: watch},
		Run: func(ctx context.Context, t *T) {
			const what = "Watch of a store without it"

			err := t.attempt(ctx, watch, t.call())
			t.refused(what, err, codes.Unimplemented)
			t.because(what, err, pb.ReasonUnsupported)
		},
	})
}

// attempt makes a call of a capability without side effects on existing secrets:
// it reads and deletes secrets that do not exist, and pushes below the prefix.
func (t *T) attempt(ctx context.Context, capability pb.Capability, call *pb.CallContext) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()

	key := t.key("attempt")
	if !writes(capability) {
		key = either(t.target().Fixtures.MissingKey, "conformance-missing")
	}

	var err error

	switch capability {
	case pb.Capability_CAPABILITY_READ:
		_, err = t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: call, Reads: []*pb.SecretRead{valueOf("0", key)}})
	case pb.Capability_CAPABILITY_FIND:
		_, err = t.collect(ctx, &pb.FindSecretsRequest{Context: call, NameRegexp: "^conformance-matches-nothing$"})
	case pb.Capability_CAPABILITY_PUSH:
		_, err = t.store().PushSecret(ctx, &pb.PushSecretRequest{Context: call, Key: key, Value: []byte("x"), UpdatePolicy: pb.UpdatePolicy_UPDATE_POLICY_REPLACE, Owner: ownerA, Metadata: t.settings()})
	case pb.Capability_CAPABILITY_DELETE:
		_, err = t.store().DeleteSecret(ctx, &pb.DeleteSecretRequest{Context: call, Key: key, Owner: ownerA})
	case pb.Capability_CAPABILITY_EXISTS:
		_, err = t.store().SecretExists(ctx, &pb.SecretExistsRequest{Context: call, Key: key})
	case pb.Capability_CAPABILITY_WATCH:
		stream, opened := t.store().Watch(ctx, &pb.WatchRequest{Context: call, Keys: []string{key}})
		if err = opened; err == nil {
			_, err = stream.Recv()
		}
	case pb.Capability_CAPABILITY_GENERATE:
		_, err = pb.NewGeneratorClient(t.run.conn).Generate(ctx, &pb.GenerateRequest{Context: call})
	case pb.Capability_CAPABILITY_CLEANUP:
		_, err = pb.NewGeneratorClient(t.run.conn).Cleanup(ctx, &pb.CleanupRequest{Context: call})
	case pb.Capability_CAPABILITY_UNSPECIFIED:
	}

	return err
}

func healthTests() []Test {
	return []Test{
		{ID: "health.status-is-reported", Why: "The operator shows a provider's state and its reason in the status of the SecretProvider.", Run: statusIsReported},
		{ID: "health.is-served", Why: "Kubelets and load balancers call grpc.health.v1 to check readiness.", Run: healthIsServed},
	}
}

func statusIsReported(ctx context.Context, t *T) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()

	answer, err := pb.NewProviderInfoClient(t.run.conn).GetStatus(ctx, &pb.GetStatusRequest{})
	t.must("GetStatus, which touches no backend and has two seconds", err)

	switch answer.GetState() {
	case pb.GetStatusResponse_STATE_OK:
		if answer.GetReason() != "" {
			t.Errorf("GetStatus: the state is STATE_OK, and a reason is given")
		}
	case pb.GetStatusResponse_STATE_DEGRADED, pb.GetStatusResponse_STATE_FAILING:
		if answer.GetReason() == "" {
			t.Errorf("GetStatus: the state is %s, and no reason is given", answer.GetState())
		}
	case pb.GetStatusResponse_STATE_UNSPECIFIED:
		fallthrough
	default:
		t.Errorf("GetStatus: the state is %s", answer.GetState())
	}
}

func healthIsServed(ctx context.Context, t *T) {
	answer, err := healthpb.NewHealthClient(t.run.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	t.must("grpc.health.v1.Health/Check", err)

	if answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("grpc.health.v1.Health/Check: the server as a whole is %s", answer.GetStatus())
	}
}
