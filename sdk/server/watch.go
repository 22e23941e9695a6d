package server

import (
	"context"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// maxWatchedKeys bounds the keys of one watch, and those of one message.
const maxWatchedKeys = 10_000

// Watch streams changes until the caller cancels it. It fails with UNAVAILABLE
// when the store is replaced or the process stops: the caller then watches again,
// and reads everything once.
func (s *storeService) Watch(request *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	call := request.GetContext()
	if err := checkUse(call, storeKinds()); err != nil {
		return err
	}

	if len(request.GetKeys()) > maxWatchedKeys {
		e := provider.InvalidRequest("the watch names %d keys, more than %d", len(request.GetKeys()), maxWatchedKeys)
		e.Reason = pb.ReasonTooLarge

		return e
	}

	acquired, err := s.sessions.Acquire(stream.Context(), call)
	if err != nil {
		return provider.AsError(err)
	}
	defer acquired.Release()

	watcher, ok := acquired.Instance.(provider.Watcher)
	if !ok {
		return provider.Unsupported("%s does not watch secrets", call.GetConfig().GetKind())
	}

	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()

	go func() {
		select {
		case <-acquired.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()

	err = watcher.Watch(ctx, request.GetKeys(), func(change provider.Change) error {
		return stream.Send(changeOf(change))
	})

	switch {
	case isRefusal(err):
		acquired.Discard()
	case stream.Context().Err() != nil:
		return provider.AsError(stream.Context().Err())
	case ctx.Err() != nil:
		return provider.Unavailable("the store is replaced: watch again")
	case err == nil:
		return provider.Unavailable("the watch ended: watch again")
	}

	return provider.AsError(err)
}

// changeOf returns the message of a change. A change that cannot be sent becomes a
// resync.
func changeOf(change provider.Change) *pb.WatchResponse {
	response := &pb.WatchResponse{Keys: change.Keys, Resync: change.Resync}

	for _, key := range change.Keys {
		if !utf8.ValidString(key) {
			return &pb.WatchResponse{Resync: true}
		}
	}

	if len(change.Keys) > maxWatchedKeys {
		return &pb.WatchResponse{Resync: true}
	}

	return response
}

// watches ends the unbounded streams when the process stops:
// watches of changes and of the health.
type watches struct {
	once  sync.Once
	ended chan struct{}
}

func newWatches() *watches { return &watches{ended: make(chan struct{})} }

// end ends the streams that are open and those that are opened later.
func (w *watches) end() { w.once.Do(func() { close(w.ended) }) }

func (w *watches) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !strings.HasSuffix(info.FullMethod, "/Watch") {
		return handler(server, stream)
	}

	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()

	go func() {
		select {
		case <-w.ended:
			cancel()
		case <-ctx.Done():
		}
	}()

	err := handler(server, boundedStream{stream, ctx})

	select {
	case <-w.ended:
		return provider.Unavailable("the provider is shutting down")
	default:
		return err
	}
}
