package server

import (
	"context"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// infoService serves the protocol's ProviderInfo service.
type infoService struct {
	pb.UnimplementedProviderInfoServer

	provider provider.Provider
	status   *ownStatus
}

var _ pb.ProviderInfoServer = (*infoService)(nil)

// GetInfo answers from the registration alone.
func (s *infoService) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	info := &pb.GetInfoResponse{
		Name:             s.provider.Name,
		Version:          s.provider.Version,
		ProtocolVersions: []string{pb.ProtocolVersion},
		Limits:           &pb.Limits{MaxBatchSize: maxBatchSize, MaxMessageBytes: maxMessageBytes},
	}

	for _, kind := range s.provider.Kinds {
		definition := kind.Definition()
		apiVersion, name := definition.GroupVersionKind.ToAPIVersionAndKind()
		info.Kinds = append(info.Kinds, &pb.Kind{
			ApiVersion: apiVersion, Kind: name, Service: definition.Service, Capabilities: definition.Capabilities,
		})
	}

	return info, nil
}

// GetStatus answers from the provider's recent work.
func (s *infoService) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	state, reason := s.status.now()

	return &pb.GetStatusResponse{State: state, Reason: reason}, nil
}
