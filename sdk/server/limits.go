package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
)

const (
	// maxCallTime bounds a call, and maxStreamTime one that answers a stream,
	// whatever deadline the caller sets, or sets none: one that is never taken
	// back would hold its store for ever.
	maxCallTime   = 2 * time.Minute
	maxStreamTime = 10 * time.Minute
)

// limits bounds how long calls may take.
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

	return handler(server, boundedStream{stream, ctx})
}

// boundedStream ends by its own deadline.
type boundedStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is the stream's own
}

// Context of the stream.
func (b boundedStream) Context() context.Context { return b.ctx }
