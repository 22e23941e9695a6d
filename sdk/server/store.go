package server

import (
	"context"
	"fmt"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/session"
	"github.com/external-secrets/eso/sdk/provider"
)

// storeService serves the protocol's SecretStore service.
type storeService struct {
	pb.UnimplementedSecretStoreServer

	sessions *session.Sessions
}

var _ pb.SecretStoreServer = (*storeService)(nil)

// GetSecrets reads a batch. Where the backend refuses the store's login, the batch
// is read once more with a new store.
func (s *storeService) GetSecrets(ctx context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	call := request.GetContext()
	if err := checkUse(call, storeKinds()); err != nil {
		return nil, err
	}

	reads, err := readsOf(request.GetReads())
	if err != nil {
		return nil, err
	}

	if len(reads) == 0 {
		return &pb.GetSecretsResponse{}, nil
	}

	results, fresh, err := s.read(ctx, call, reads)
	if err != nil {
		return nil, err
	}

	if !fresh && refused(results) {
		if results, _, err = s.read(ctx, call, reads); err != nil {
			return nil, err
		}
	}

	// After the deadline every read failed because of the caller, and would look
	// like a failure of each secret.
	if err := ctx.Err(); err != nil {
		return nil, provider.AsError(err)
	}

	// A failure of the whole store fails the call, so that the operator does not
	// try each secret in turn.
	if err := storeFailure(results); err != nil {
		return nil, err
	}

	response := &pb.GetSecretsResponse{}
	for i, result := range results {
		response.Results = append(response.Results, resultOf(request.GetReads()[i].GetId(), reads[i], result))
	}

	// gRPC would fail the call too, without the reason.
	if size := proto.Size(response); size > maxMessageBytes {
		return nil, &provider.Error{
			Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge,
			Message: fmt.Sprintf("the answer to the %d reads has %d bytes, more than %d", len(reads), size, maxMessageBytes),
		}
	}

	return response, nil
}

// read performs the reads with the call's store, and discards the store where
// the backend refuses its login.
func (s *storeService) read(ctx context.Context, call *pb.CallContext, reads []provider.Read) ([]provider.Result, bool, error) {
	acquired, err := s.sessions.Acquire(ctx, call)
	if err != nil {
		return nil, false, provider.AsError(err)
	}
	defer acquired.Release()

	reader, ok := acquired.Instance.(provider.Reader)
	if !ok {
		return nil, false, provider.Unsupported("%s does not read secrets", call.GetConfig().GetKind())
	}

	results := reader.Read(ctx, reads)
	if len(results) != len(reads) {
		return nil, false, &provider.Error{
			Code: codes.Internal, Reason: pb.ReasonInternal,
			Message: fmt.Sprintf("the provider has a defect: it answered %d of %d reads", len(results), len(reads)),
		}
	}

	if refused(results) {
		acquired.Discard()
	}

	return results, acquired.Fresh, nil
}

// Validate reports whether the config can work.
func (s *storeService) Validate(ctx context.Context, request *pb.ValidateRequest) (*pb.ValidateResponse, error) {
	call := request.GetContext()
	if err := check(call, storeKinds()); err != nil {
		return nil, err
	}

	if call.GetAuthenticationNamespace() == "" {
		return &pb.ValidateResponse{
			Verdict: pb.ValidateResponse_VERDICT_UNKNOWN,
			Message: "credentials resolve in the namespace of each ExternalSecret: only a read shows whether they are valid",
		}, nil
	}

	acquired, err := s.sessions.Acquire(ctx, call)
	if err != nil {
		return verdictOf(err)
	}
	defer acquired.Release()

	store, ok := acquired.Instance.(provider.Store)
	if !ok {
		return nil, provider.Unsupported("%s does not configure a store", call.GetConfig().GetKind())
	}

	validation, err := store.Validate(ctx)
	if err != nil {
		if isRefusal(err) {
			acquired.Discard()
		}

		return verdictOf(err)
	}

	verdict := pb.ValidateResponse_VERDICT_VALID
	if validation.Unknown {
		verdict = pb.ValidateResponse_VERDICT_UNKNOWN
	}

	return &pb.ValidateResponse{Verdict: verdict, Message: validation.Message, Warnings: validation.Warnings}, nil
}

// verdictOf returns the verdict that an error is about the config, or the error.
func verdictOf(err error) (*pb.ValidateResponse, error) {
	typed := provider.AsError(err)

	switch typed.Code {
	case codes.FailedPrecondition, codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied:
		return &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_INVALID, Message: typed.Message}, nil
	default:
		return nil, typed
	}
}

func refused(results []provider.Result) bool {
	for _, result := range results {
		if isRefusal(result.Err) {
			return true
		}
	}

	return false
}

// storeFailure returns the error of a batch in which every read failed for a
// reason that concerns the whole store; nil for any other batch.
func storeFailure(results []provider.Result) error {
	var first error

	for _, result := range results {
		if result.Err == nil {
			return nil
		}

		typed := provider.AsError(result.Err)
		if !typed.StoreScope {
			return nil
		}

		if first == nil {
			first = typed
		}
	}

	return first
}

func isRefusal(err error) bool {
	return err != nil && provider.AsError(err).Code == codes.Unauthenticated
}

// readsOf checks a batch.
func readsOf(wire []*pb.SecretRead) ([]provider.Read, error) {
	if len(wire) > maxBatchSize {
		e := provider.InvalidRequest("the batch has %d reads, more than %d", len(wire), maxBatchSize)
		e.Reason = pb.ReasonTooLarge

		return nil, e
	}

	reads := make([]provider.Read, 0, len(wire))
	ids := make(map[string]bool, len(wire))

	for i, r := range wire {
		read := provider.Read{Key: r.GetKey(), Property: r.GetProperty(), Version: r.GetVersion(), KnownRevision: r.GetKnownRevision()}

		switch r.GetMetadataPolicy() {
		case pb.MetadataPolicy_METADATA_POLICY_UNSPECIFIED, pb.MetadataPolicy_METADATA_POLICY_NONE:
		case pb.MetadataPolicy_METADATA_POLICY_FETCH:
			read.Metadata = true
		default:
			return nil, provider.InvalidRequest("reads[%d].metadata_policy is %v", i, r.GetMetadataPolicy())
		}

		switch r.GetShape() {
		case pb.Shape_SHAPE_VALUE:
			read.Shape = provider.Value
		case pb.Shape_SHAPE_MAP:
			read.Shape = provider.Map
		case pb.Shape_SHAPE_UNSPECIFIED:
			fallthrough
		default:
			return nil, provider.InvalidRequest("reads[%d].shape is %v", i, r.GetShape())
		}

		switch {
		case r.GetId() == "":
			return nil, provider.InvalidRequest("reads[%d].id is empty", i)
		case ids[r.GetId()]:
			return nil, provider.InvalidRequest("reads[%d].id repeats another", i)
		case r.GetKey() == "":
			return nil, provider.InvalidRequest("reads[%d].key is empty", i)
		}

		ids[r.GetId()] = true
		reads = append(reads, read)
	}

	return reads, nil
}

// resultOf returns the message of a result. Texts of a store may be any bytes, and
// a string field that is not UTF-8 would fail the whole batch.
func resultOf(id string, read provider.Read, result provider.Result) *pb.SecretResult {
	wire := &pb.SecretResult{Id: id}

	if result.Err == nil {
		wire.Revision = revisionOf(result.Revision)
	}

	switch {
	case result.Err != nil:
		wire.Outcome = &pb.SecretResult_Error{Error: errorOf(result.Err)}
	case result.NotModified:
		wire.Outcome = &pb.SecretResult_NotModified{NotModified: &pb.NotModified{}}
	case read.Shape == provider.Map:
		m := &pb.SecretMap{}

		for name, value := range result.Map {
			if !utf8.ValidString(name) {
				wire.Outcome = &pb.SecretResult_Error{Error: errorOf(provider.InvalidRequest("the secret has a key that is not UTF-8: %q", name))}

				return wire
			}

			m.Entries = append(m.Entries, &pb.SecretEntry{Key: name, Value: value})
		}

		wire.Outcome = &pb.SecretResult_Map{Map: m}
	default:
		wire.Outcome = &pb.SecretResult_Value{Value: result.Value}
	}

	return wire
}

// revisionOf leaves out a revision that cannot be sent: an empty one is valid.
func revisionOf(revision string) string {
	if !utf8.ValidString(revision) {
		return ""
	}

	return revision
}

// errorOf returns the message of a read's error.
func errorOf(err error) *pb.Error {
	status := provider.AsError(err).GRPCStatus()
	wire := &pb.Error{Code: int32(status.Code()), Message: status.Message()} //nolint:gosec // codes are below 17

	for _, detail := range status.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			wire.Reason = detail.GetReason()
		case *errdetails.RetryInfo:
			wire.RetryAfter = detail.GetRetryDelay()
		}
	}

	return wire
}
