package providerclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/store"
)

const (
	// findTimeout bounds a whole stream: a large store takes its time.
	findTimeout = 2 * time.Minute
	// idleTimeout bounds the wait for the next message of a stream.
	idleTimeout = 30 * time.Second
	// maxFoundBytes bounds what one find may answer, in keys and values. A
	// target holds 1 MiB; rewriting may leave most of it out.
	maxFoundBytes = 16 << 20
	// maxKeyBytes bounds the name of one secret.
	maxKeyBytes = 4096
)

// Find streams the secrets that match. More than limit, or more bytes than
// fit, are an error: in a truncated answer, secrets would seem to be deleted.
func (c *Client) Find(ctx context.Context, call *pb.CallContext, find store.Find, limit int) (map[string][]byte, error) {
	call, _ = proto.Clone(call).(*pb.CallContext)
	call.RequestId = NewRequestID()

	var found map[string][]byte

	err := c.call(ctx, "FindSecrets", findTimeout, call.GetRequestId(), func(ctx context.Context) (err error) {
		// Ends the stream in any case, also if it was not read completely.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)

		idle := time.AfterFunc(idleTimeout, func() { cancel(context.DeadlineExceeded) })
		defer idle.Stop()

		stream, err := pb.NewSecretStoreClient(c.conn.grpc).FindSecrets(ctx, &pb.FindSecretsRequest{
			Context: call, Path: find.Path, NameRegexp: find.Name, Tags: find.Tags, MaxResults: uint32(limit), //nolint:gosec // a flag's value, checked there
		})
		if err != nil {
			return err
		}

		found, err = collect(call.GetRequestId(), limit, func() (*pb.FindSecretsResponse, error) {
			idle.Reset(idleTimeout)

			return stream.Recv()
		})
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return context.DeadlineExceeded
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	return found, nil
}

// collect reads a stream to its end, and refuses what was not asked for.
func collect(requestID string, limit int, next func() (*pb.FindSecretsResponse, error)) (map[string][]byte, error) {
	found, size := map[string][]byte{}, 0

	for {
		message, err := next()

		switch {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		}

		for _, entry := range message.GetEntries() {
			key := entry.GetKey()
			size += len(key) + len(entry.GetValue())

			switch _, twice := found[key]; {
			case twice:
				return nil, breach(requestID, "the secret %q twice", clean(key))
			case key == "" || len(key) > maxKeyBytes:
				return nil, breach(requestID, "a secret whose name has %d bytes", len(key))
			case len(found) == limit:
				return nil, tooMany(requestID, fmt.Sprintf("more than %d secrets match", limit))
			case size > maxFoundBytes:
				return nil, tooMany(requestID, fmt.Sprintf("the secrets that match have more than %d bytes", maxFoundBytes))
			}

			found[key] = entry.GetValue()
		}
	}
}

func tooMany(requestID, text string) *store.Error {
	return &store.Error{
		Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge, Item: true, RequestID: requestID,
		Message: text + ": narrow find by path, name or tags",
	}
}
