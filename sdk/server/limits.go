package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxCallTime bounds a call, and maxStreamTime a stream, whatever the caller's
	// deadline is: a call without one could use its store forever.
	maxCallTime   = 2 * time.Minute
	maxStreamTime = 10 * time.Minute
)

// limits bounds the duration of calls. It is the first interceptor, because it
// returns before the handler of a stream does.
type limits struct{ call, stream time.Duration }

func (l limits) unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, l.call)
	defer cancel()

	return handler(ctx, request)
}

func (l limits) streams(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	// A watch of the health, or of changes, lasts until its caller cancels it.
	if !strings.HasPrefix(info.FullMethod, protocolPrefix) || strings.HasSuffix(info.FullMethod, "/Watch") {
		return handler(server, stream)
	}

	ctx, cancel := context.WithTimeout(stream.Context(), l.stream)
	defer cancel()

	// A send to a caller that reads nothing blocks until the call ends, whatever
	// its context is.
	done := make(chan error, 1)

	go func() { done <- handler(server, boundedStream{stream, ctx}) }()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return provider.AsError(ctx.Err())
	}
}

// boundedStream is a stream with another context.
type boundedStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is the stream's own
}

// Context of the stream.
func (b boundedStream) Context() context.Context { return b.ctx }
