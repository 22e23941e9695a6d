package server

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// If callers are configured, calls need a valid token; health checks do not.
func TestCallersAreVerified(t *testing.T) {
	t.Parallel()

	p := start(t, &backend{}, Options{Callers: []types.NamespacedName{{Namespace: "eso", Name: "operator"}}, TokenAudience: "audience"})

	if _, err := p.info.GetInfo(p.context(), &pb.GetInfoRequest{}); err != nil {
		t.Errorf("GetInfo: %v", err)
	}

	if _, err := p.info.GetStatus(p.context(), &pb.GetStatusRequest{}); err != nil {
		t.Errorf("GetStatus: %v", err)
	}

	calls := map[string]func(context.Context) error{
		"GetSecrets": func(ctx context.Context) error {
			_, err := p.secrets.GetSecrets(ctx, &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{read("k")}})

			return err
		},
		"Validate": func(ctx context.Context) error {
			_, err := p.secrets.Validate(ctx, &pb.ValidateRequest{Context: callContext()})

			return err
		},
		"FindSecrets": func(ctx context.Context) error {
			stream, err := p.secrets.FindSecrets(ctx, &pb.FindSecretsRequest{Context: callContext()})
			if err != nil {
				return err
			}

			_, err = stream.Recv()

			return err
		},
	}

	for name, call := range calls {
		for token, want := range map[string]string{
			"": "the call carries no token",
			// The test's API server reviews nothing.
			canary: `the token does not hold for audience "audience"`,
		} {
			ctx := p.context()
			if token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, pb.TokenMetadata, pb.TokenScheme+token)
			}

			err := call(ctx)
			if failure := failureOf(err); status.Code(err) != codes.Unauthenticated || failure != of(codes.Unauthenticated, pb.ReasonCallerRefused, pb.ScopeStore) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s with token %q: %v", name, token, err)
			}
		}
	}

	if made, _ := p.counts(); made != 0 {
		t.Errorf("%d stores were created for unknown callers", made)
	}

	if strings.Contains(p.log.String(), canary) {
		t.Error("the log holds a token")
	}
}
