package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxCallTime bounds a call, and maxStreamTime one that answers a stream,
	// whatever deadline the caller sets, or sets none: one that is never taken
	// back would hold its store for ever.
	maxCallTime   = 2 * time.Minute
	maxStreamTime = 10 * time.Minute
)

// limits bounds how long calls may take. It comes before everything that must
// see the end, or the panic, of a stream's handler.
type limits struct{ call, stream time.Duration }

func (l limits) unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, l.call)
	defer cancel()

	return handler(ctx, request)
}

func (l limits) streams(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	// A watch of the health, or of changes, lasts as long as its caller likes.
	if !strings.HasPrefix(info.FullMethod, protocolPrefix) || strings.HasSuffix(info.FullMethod, "/Watch") {
		return handler(server, stream)
	}

	ctx, cancel := context.WithTimeout(stream.Context(), l.stream)
	defer cancel()

	// gRPC waits by the connection's own time for a caller that takes nothing:
	// only the end of the call ends that.
	done := make(chan error, 1)

	go func() { done <- handler(server, boundedStream{stream, ctx}) }()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return provider.AsError(ctx.Err())
	}
}

// boundedStream ends by its own deadline.
type boundedStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is the stream's own
}

// Context of the stream.
func (b boundedStream) Context() context.Context { return b.ctx }
