package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// server's stream of a test.
type idleStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // it is a stream's context
}

func (s idleStream) Context() context.Context { return s.ctx }

// A caller that sets no deadline, or one of next year, gets ours.
func TestCallsEnd(t *testing.T) {
	t.Parallel()

	l := limits{call: 20 * time.Millisecond, stream: 20 * time.Millisecond}
	patient, cancel := context.WithTimeout(t.Context(), patience)

	defer cancel()

	for why, ctx := range map[string]context.Context{"no deadline": t.Context(), "a later one": patient} {
		if _, err := l.unary(ctx, nil, nil, func(ctx context.Context, _ any) (any, error) {
			<-ctx.Done()

			return nil, ctx.Err()
		}); err == nil {
			t.Errorf("%s: a call has not been ended", why)
		}

		end := func(_ any, stream grpc.ServerStream) error {
			<-stream.Context().Done()

			return stream.Context().Err()
		}

		if err := l.streams(nil, idleStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: protocolPrefix + "v2alpha1.SecretStore/FindSecrets"}, end); err == nil {
			t.Errorf("%s: a stream has not been ended", why)
		}
	}

	// A caller that does not receive does not hold resources forever either.
	stuck := make(chan struct{})
	defer close(stuck)

	if err := l.streams(nil, idleStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: protocolPrefix + "v2alpha1.SecretStore/FindSecrets"},
		func(any, grpc.ServerStream) error {
			<-stuck

			return nil
		}); err == nil {
		t.Error("a stream whose caller takes nothing has not been ended")
	}

	watch := func(_ any, stream grpc.ServerStream) error {
		select {
		case <-stream.Context().Done():
			t.Error("a watch has been ended")
		case <-time.After(4 * l.stream):
		}

		return nil
	}

	for _, method := range []string{protocolPrefix + "v2alpha1.SecretStore/Watch", "/grpc.health.v1.Health/Watch"} {
		if err := l.streams(nil, idleStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: method}, watch); err != nil {
			t.Error(err)
		}
	}
}
