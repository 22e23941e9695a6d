package providerclient

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/store"
)

const (
	// establishTimeout bounds the wait until a watch is established.
	establishTimeout = time.Minute
	// maxChanged bounds the keys of one answer of a watch.
	maxChanged = 10_000
)

// Watch calls report with every change of a secret of the store until ctx or the
// watch ends, and returns the reason. The first event has Established set.
func (c *Client) Watch(ctx context.Context, call *pb.CallContext, report func(store.Event) error) (err error) {
	call, _ = proto.Clone(call).(*pb.CallContext)
	call.RequestId = NewRequestID()

	began := time.Now()
	defer func() { c.watched(ctx, began, err) }()

	release := c.conn.watch()
	defer release()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	ctx, shown, err := c.identified(ctx, call.GetRequestId())
	if err != nil {
		return err
	}

	late := time.AfterFunc(establishTimeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()

	stream, err := pb.NewSecretStoreClient(c.conn.grpc).Watch(ctx, &pb.WatchRequest{Context: call})
	if err != nil {
		return c.failed(call.GetRequestId(), shown, err)
	}

	for first := true; ; first = false {
		answer, err := stream.Recv()

		switch {
		case err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
			return &store.Error{Code: codes.DeadlineExceeded, Reason: pb.ReasonUnavailable, RequestID: call.GetRequestId(), Message: "the provider has not confirmed the watch"}
		case err != nil:
			return c.failed(call.GetRequestId(), shown, err)
		case first && len(answer.GetKeys()) > 0:
			return breach(call.GetRequestId(), "keys before it confirmed the watch")
		case len(answer.GetKeys()) > maxChanged:
			return breach(call.GetRequestId(), "%d keys in one answer of a watch, more than %d", len(answer.GetKeys()), maxChanged)
		}

		if first {
			late.Stop()
		}

		if err := report(store.Event{Established: first, Keys: answer.GetKeys(), Resync: answer.GetResync()}); err != nil {
			return err
		}
	}
}

// watched counts a watch that ended; that its last subscriber left is no
// failure.
func (c *Client) watched(ctx context.Context, began time.Time, err error) {
	code := codes.OK
	if typed, ok := errors.AsType[*store.Error](err); ok && ctx.Err() == nil {
		code = typed.Code
	}

	c.called(c.name(), "Watch", code.String(), time.Since(began))
}
