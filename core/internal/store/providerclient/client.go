package providerclient

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/store"
)

const (
	infoTimeout     = 5 * time.Second
	validateTimeout = 30 * time.Second
	readTimeout     = 30 * time.Second
	// defaultBatch bounds a batch, whatever more the provider would take.
	defaultBatch = 100
	// maxKinds bounds what GetInfo may list, the others the names of each.
	maxKinds      = 256
	maxAPIVersion = 317
	maxKindName   = 63
	// maxWarnings of a validation are reported.
	maxWarnings = 10
	// maxKeys bounds the keys of one map answer.
	maxKeys = 10000
	// maxRevision bounds a revision, in bytes: it is kept.
	maxRevision = 1024
)

// Client calls one provider.
type Client struct {
	endpoint Endpoint
	conn     *connection
	who      token.Identity
	tokens   Tokens
	called   Called
}

// NewRequestID returns an id for a call.
func NewRequestID() string {
	var id [8]byte

	_, _ = rand.Read(id[:]) // never fails, says crypto/rand

	return hex.EncodeToString(id[:])
}

// call runs one RPC inside the provider's bounds.
func (c *Client) call(ctx context.Context, method string, timeout time.Duration, requestID string, rpc func(context.Context) error) (err error) {
	began, code := time.Now(), codes.OK

	defer func() {
		if typed, ok := errors.AsType[*store.Error](err); ok {
			code = typed.Code
		}

		c.called(c.name(), method, code.String(), time.Since(began))
	}()

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	release, err := c.conn.acquire(ctx)
	if err != nil {
		return &store.Error{Code: codes.ResourceExhausted, Reason: reasonOwnLimit, Message: err.Error(), RequestID: requestID}
	}
	defer release()

	ctx, shown, err := c.identified(ctx, requestID)
	if err != nil {
		return err
	}

	if err := rpc(ctx); err != nil {
		return c.failed(requestID, shown, err)
	}

	return nil
}

// name of the provider, for metrics.
func (c *Client) name() string {
	if c.endpoint.Provider != "" {
		return c.endpoint.Provider
	}

	return c.endpoint.Address.String()
}

// reasonOwnLimit: the registration's limits leave no room. That is not the
// provider's failure.
const reasonOwnLimit = "LIMIT"

// identified adds the token that the call carries, and returns it.
func (c *Client) identified(ctx context.Context, requestID string) (with context.Context, shown string, err error) {
	if c.who.None() {
		return ctx, "", nil
	}

	bearer, err := c.tokens.Token(ctx, c.who)
	if err != nil {
		return nil, "", &store.Error{Code: codes.Unauthenticated, Reason: pb.ReasonCallerRefused, Message: clean(err.Error()), RequestID: requestID}
	}

	return metadata.AppendToOutgoingContext(ctx, pb.TokenMetadata, pb.TokenScheme+bearer), bearer, nil
}

// failed converts the failure of a call to an Error. A token that was refused is
// replaced for the next call.
func (c *Client) failed(requestID, shown string, err error) *store.Error {
	typed := callError(c.endpoint, requestID, err)
	if typed.Reason == pb.ReasonCallerRefused && !c.who.None() {
		c.tokens.Forget(c.who, shown)
	}

	return typed
}

// Info calls GetInfo and checks its answer.
func (c *Client) Info(ctx context.Context) (*pb.GetInfoResponse, error) {
	var info *pb.GetInfoResponse

	err := c.call(ctx, "GetInfo", infoTimeout, "", func(ctx context.Context) (err error) {
		info, err = pb.NewProviderInfoClient(c.conn.grpc).GetInfo(ctx, &pb.GetInfoRequest{})

		return err
	})
	if err != nil {
		return nil, err
	}

	switch {
	case info.GetName() == "":
		return nil, breach("", "no name for itself")
	case len(info.GetKinds()) == 0 && slices.Contains(info.GetProtocolVersions(), pb.ProtocolVersion):
		return nil, breach("", "that it serves no kind")
	case len(info.GetKinds()) > maxKinds:
		return nil, breach("", "%d kinds, more than %d", len(info.GetKinds()), maxKinds)
	}

	seen := map[string]bool{}

	for _, kind := range info.GetKinds() {
		id := kind.GetApiVersion() + "/" + kind.GetKind()
		if kind.GetApiVersion() == "" || kind.GetKind() == "" || seen[id] {
			return nil, breach("", "the kind %q twice or without a name", clean(id))
		}

		if len(kind.GetApiVersion()) > maxAPIVersion || len(kind.GetKind()) > maxKindName {
			return nil, breach("", "a kind whose name has %d bytes", len(id))
		}

		seen[id] = true
	}

	c.conn.maxBatch.Store(info.GetLimits().GetMaxBatchSize())

	return info, nil
}

// Status calls GetStatus.
func (c *Client) Status(ctx context.Context) (*pb.GetStatusResponse, error) {
	var status *pb.GetStatusResponse

	err := c.call(ctx, "GetStatus", infoTimeout, "", func(ctx context.Context) (err error) {
		status, err = pb.NewProviderInfoClient(c.conn.grpc).GetStatus(ctx, &pb.GetStatusRequest{})

		return err
	})
	if err != nil {
		return nil, err
	}

	status.Reason = clean(status.GetReason())

	return status, nil
}

// Validate calls Validate and checks its answer.
func (c *Client) Validate(ctx context.Context, call *pb.CallContext) (*pb.ValidateResponse, error) {
	var verdict *pb.ValidateResponse

	err := c.call(ctx, "Validate", validateTimeout, call.GetRequestId(), func(ctx context.Context) (err error) {
		verdict, err = pb.NewSecretStoreClient(c.conn.grpc).Validate(ctx, &pb.ValidateRequest{Context: call})

		return err
	})
	if err != nil {
		return nil, err
	}

	if verdict.GetVerdict() == pb.ValidateResponse_VERDICT_UNSPECIFIED {
		return nil, breach(call.GetRequestId(), "no verdict")
	}

	verdict.Message = clean(verdict.GetMessage())
	verdict.Warnings = verdict.GetWarnings()[:min(len(verdict.GetWarnings()), maxWarnings)]

	for i, warning := range verdict.GetWarnings() {
		verdict.Warnings[i] = clean(warning)
	}

	return verdict, nil
}

// Read is a read of a secret, and the revision that the caller has.
type Read struct {
	store.Read

	// KnownRevision is the revision of the result that the caller has kept; where
	// it is current, the value need not be sent. Empty means none.
	KnownRevision string
}

// Read performs a batch of reads, in as many calls as the provider's limits
// need. The results are in the order of the reads; an error is that of the
// whole batch.
func (c *Client) Read(ctx context.Context, call *pb.CallContext, reads []Read) ([]store.Result, error) {
	size := defaultBatch
	if limit := int(c.conn.maxBatch.Load()); limit > 0 {
		size = min(size, limit)
	}

	results := make([]store.Result, 0, len(reads))

	for batch := range slices.Chunk(reads, size) {
		answered, err := c.readSplit(ctx, call, batch)
		if err != nil {
			return nil, err
		}

		results = append(results, answered...)
	}

	return results, nil
}

// readSplit halves a batch whose answer exceeds what one message may hold.
func (c *Client) readSplit(ctx context.Context, call *pb.CallContext, reads []Read) ([]store.Result, error) {
	results, err := c.readBatch(ctx, call, reads)

	typed, ok := errors.AsType[*store.Error](err)
	if !ok || typed.Reason != pb.ReasonTooLarge || len(reads) == 1 {
		return results, err
	}

	middle := len(reads) / 2

	first, err := c.readSplit(ctx, call, reads[:middle])
	if err != nil {
		return nil, err
	}

	second, err := c.readSplit(ctx, call, reads[middle:])
	if err != nil {
		return nil, err
	}

	return append(first, second...), nil
}

func (c *Client) readBatch(ctx context.Context, call *pb.CallContext, reads []Read) ([]store.Result, error) {
	call, _ = proto.Clone(call).(*pb.CallContext)
	call.RequestId = NewRequestID()
	request := &pb.GetSecretsRequest{Context: call}

	for i, read := range reads {
		wire := &pb.SecretRead{
			Id: strconv.Itoa(i), Shape: pb.Shape_SHAPE_VALUE, Key: read.Key, Property: read.Property, Version: read.Version,
			MetadataPolicy: pb.MetadataPolicy_METADATA_POLICY_NONE, KnownRevision: read.KnownRevision,
		}

		if read.Map {
			wire.Shape = pb.Shape_SHAPE_MAP
		}

		if read.Metadata {
			wire.MetadataPolicy = pb.MetadataPolicy_METADATA_POLICY_FETCH
		}

		request.Reads = append(request.Reads, wire)
	}

	var response *pb.GetSecretsResponse

	err := c.call(ctx, "GetSecrets", readTimeout, call.GetRequestId(), func(ctx context.Context) (err error) {
		response, err = pb.NewSecretStoreClient(c.conn.grpc).GetSecrets(ctx, request)

		return err
	})
	if err != nil {
		return nil, err
	}

	return match(call.GetRequestId(), reads, response.GetResults())
}

// match assigns results to reads, and refuses results that were not asked for.
func match(requestID string, reads []Read, answers []*pb.SecretResult) ([]store.Result, error) {
	if len(answers) != len(reads) {
		return nil, breach(requestID, "%d results to %d reads", len(answers), len(reads))
	}

	results := make([]store.Result, len(reads))
	answered := make([]bool, len(reads))

	for _, answer := range answers {
		i, err := strconv.Atoi(answer.GetId())
		if err != nil || i < 0 || i >= len(reads) || answered[i] || strconv.Itoa(i) != answer.GetId() {
			return nil, breach(requestID, "a result with id %q, which no read has or another result had", clean(answer.GetId()))
		}

		answered[i] = true
		results[i].Revision = answer.GetRevision()

		if len(results[i].Revision) > maxRevision {
			return nil, breach(requestID, "a revision of %d bytes, more than %d", len(results[i].Revision), maxRevision)
		}

		switch outcome := answer.GetOutcome().(type) {
		case *pb.SecretResult_Error:
			results[i].Err = itemError(requestID, outcome.Error)
		case *pb.SecretResult_Value:
			if reads[i].Map {
				return nil, breach(requestID, "a value to a read of a map")
			}

			results[i].Value = outcome.Value
		case *pb.SecretResult_Map:
			if !reads[i].Map {
				return nil, breach(requestID, "a map to a read of a value")
			}

			if results[i].Map, err = entries(requestID, outcome.Map.GetEntries()); err != nil {
				return nil, err
			}
		case *pb.SecretResult_NotModified:
			if reads[i].KnownRevision == "" || reads[i].KnownRevision != answer.GetRevision() {
				return nil, breach(requestID, "that revision %q is not modified, which was not sent", clean(answer.GetRevision()))
			}

			results[i].NotModified = true
		default:
			return nil, breach(requestID, "a result without an outcome that was asked for")
		}
	}

	return results, nil
}

func entries(requestID string, wire []*pb.SecretEntry) (map[string][]byte, error) {
	if len(wire) > maxKeys {
		return nil, breach(requestID, "a map of %d keys, more than %d", len(wire), maxKeys)
	}

	values := make(map[string][]byte, len(wire))

	for _, entry := range wire {
		if _, twice := values[entry.GetKey()]; twice {
			return nil, breach(requestID, "a map with the key %q twice", clean(entry.GetKey()))
		}

		values[entry.GetKey()] = entry.GetValue()
	}

	return values, nil
}
