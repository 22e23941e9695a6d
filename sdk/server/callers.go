package server

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	"github.com/external-secrets/eso/sdk/internal/caller"
)

// callers refuses calls with a call context whose token is missing or invalid.
// GetInfo, GetStatus and the health have none: every authenticated peer may call
// them.
type callers struct{ verifier *caller.Verifier }

func (c *callers) unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if call, ok := request.(contextual); ok {
		if err := c.verifier.Verify(ctx, call.GetContext()); err != nil {
			return nil, err
		}
	}

	return handler(ctx, request)
}

func (c *callers) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !strings.HasPrefix(info.FullMethod, protocolPrefix) {
		return handler(server, stream)
	}

	return handler(server, &verifiedStream{ServerStream: stream, verifier: c.verifier})
}

// verifiedStream verifies the call when its request is received.
type verifiedStream struct {
	grpc.ServerStream

	verifier *caller.Verifier
}

// RecvMsg reads the request.
func (v *verifiedStream) RecvMsg(message any) error {
	if err := v.ServerStream.RecvMsg(message); err != nil {
		return err
	}

	if call, ok := message.(contextual); ok {
		return v.verifier.Verify(v.Context(), call.GetContext())
	}

	return nil
}
