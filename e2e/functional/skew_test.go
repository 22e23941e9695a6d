package functional

import (
	"context"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"
)

// skewed is a provider of another version.
type skewed struct {
	suite.Stub

	// status and validate are RPCs that it may not have.
	withoutStatus, withoutValidate bool
	// later adds fields that this version does not know to its answers.
	later bool
}

// age adds a field of a later version to an answer.
func (s *skewed) age(answer proto.Message) {
	if s.later {
		answer.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "later"))
	}
}

func (s *skewed) GetInfo(ctx context.Context, request *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	info, err := s.Stub.GetInfo(ctx, request)
	info, _ = proto.Clone(info).(*pb.GetInfoResponse)
	s.age(info)

	return info, err
}

func (s *skewed) GetStatus(ctx context.Context, request *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	if s.withoutStatus {
		return s.UnimplementedProviderInfoServer.GetStatus(ctx, request)
	}

	return s.Stub.GetStatus(ctx, request)
}

func (s *skewed) Validate(ctx context.Context, request *pb.ValidateRequest) (*pb.ValidateResponse, error) {
	if s.withoutValidate {
		return s.UnimplementedSecretStoreServer.Validate(ctx, request)
	}

	answer, err := s.Stub.Validate(ctx, request)
	s.age(answer)

	return answer, err
}

func (s *skewed) GetSecrets(_ context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	answer := &pb.GetSecretsResponse{}
	s.age(answer)

	for _, read := range request.GetReads() {
		result := &pb.SecretResult{Id: read.GetId(), Outcome: &pb.SecretResult_Value{Value: []byte("s3cret")}}
		s.age(result)
		answer.Results = append(answer.Results, result)
	}

	return answer, nil
}

// Operator and provider of different versions work together, or say which one
// to install.
func TestSkew(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name     string
		protocol []string
		provider skewed
		// reason of the registration, and what it says.
		reason, want string
		// message of the store, where the registration serves.
		store string
	}{
		{name: "fields of a later version", protocol: []string{"v2alpha1"}, provider: skewed{later: true}, reason: v2alpha1.ReasonServing},
		{name: "a later protocol besides", protocol: []string{"v3", "v2alpha1"}, reason: v2alpha1.ReasonServing},
		{
			name: "a later protocol only", protocol: []string{"v3"}, reason: v2alpha1.ReasonUnsupportedProtocol,
			want: "speaks protocol v3, this operator v2alpha1: install a version",
		},
		{
			name: "an earlier protocol only", protocol: []string{"v1", "v2alpha0"}, reason: v2alpha1.ReasonUnsupportedProtocol,
			want: "speaks protocol v1, v2alpha0, this operator v2alpha1: install a version",
		},
		{
			name: "no GetStatus", protocol: []string{"v2alpha1"}, provider: skewed{withoutStatus: true}, reason: v2alpha1.ReasonUnsupportedProtocol,
			want: "does not serve",
		},
		{
			name: "no Validate", protocol: []string{"v2alpha1"}, provider: skewed{withoutValidate: true}, reason: v2alpha1.ReasonServing,
			store: "does not serve",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns, listener := product.Namespace(t), suite.Listen(t)
			name := "skew-" + ns
			product.Register(t, name, listener.Addr().String(), ns)
			pair, pool := product.Issued(t, ns, name)

			c.provider.Info = suite.StubInfo(name)
			c.provider.Info.ProtocolVersions = c.protocol
			suite.Serve(t, listener, pair, pool, &c.provider)

			t.Log(product.StoreCondition(t, suite.SecretProvider(name), c.reason, c.want))
			product.Apply(t, ns, suite.StoreAt("store", listener.Addr().String(), "")+suite.SimpleES("app", "store"))

			switch {
			case c.reason != v2alpha1.ReasonServing:
				t.Log(product.Failing(t, ns, "app", c.want))
			case c.store != "":
				t.Log(product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonProviderUnavailable, c.store))
			default:
				product.Holds(t, ns, "app", "password", "s3cret")
			}
		})
	}
}
