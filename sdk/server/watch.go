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

// maxWatchedKeys bounds the keys of one watch, and those of one answer.
const maxWatchedKeys = 10_000

// Watch streams changes until the caller ends it. It ends on its own, with
// UNAVAILABLE, when the store is made anew or the process stops: the caller then
// watches again, and reads everything once.
func (s *storeService) Watch(request *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	call := request.GetContext()
	if err := checkUse(call); err != nil {
		return err
	}

	if len(request.GetKeys()) > maxWatchedKeys {
		e := provider.InvalidRequest("the watch names %d keys, more than %d", len(request.GetKeys()), maxWatchedKeys)
		e.Reason = pb.ReasonTooLarge

		return e
	}

	session, err := s.sessions.Acquire(stream.Context(), call)
	if err != nil {
		return provider.AsError(err)
	}
	defer session.Release()

	watcher, ok := session.Store.(provider.Watcher)
	if !ok {
		return provider.Unsupported("%s does not watch secrets", call.GetConfig().GetKind())
	}

	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()

	go func() {
		select {
		case <-session.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()

	err = watcher.Watch(ctx, request.GetKeys(), func(change provider.Change) error {
		return stream.Send(changeOf(change))
	})

	switch {
	case isRefusal(err):
		session.Discard()
	case stream.Context().Err() != nil:
		return provider.AsError(stream.Context().Err())
	case ctx.Err() != nil:
		return provider.Unavailable("the store is made anew: watch again")
	case err == nil:
		return provider.Unavailable("the watch ended: watch again")
	}

	return provider.AsError(err)
}

// changeOf puts a change on the wire. One that cannot be told is a resync.
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

// watches ends streams without an end of their own when the process stops:
// watches of changes, and of the health.
type watches struct {
	once  sync.Once
	ended chan struct{}
}

func newWatches() *watches { return &watches{ended: make(chan struct{})} }

// end ends them, now and later.
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
