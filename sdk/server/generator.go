package server

import (
	"context"
	"maps"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/idempotency"
	"github.com/external-secrets/eso/sdk/internal/kind"
	"github.com/external-secrets/eso/sdk/internal/session"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxIdempotencyKey bounds an idempotency key, in bytes.
	maxIdempotencyKey = 1024
	// maxGeneratedBytes bounds the keys and values of a credential: those of a
	// Secret.
	maxGeneratedBytes = 1 << 20
	// maxStateBytes bounds a state, which is recorded in an object of the cluster.
	maxStateBytes = 64 << 10
)

// generatorService serves the protocol's Generator service.
type generatorService struct {
	pb.UnimplementedGeneratorServer

	sessions *session.Sessions
	results  *idempotency.Results
	// panicked logs a panic and returns the error for the caller.
	panicked func(method string, panicked any) error
}

var _ pb.GeneratorServer = (*generatorService)(nil)

// Generate creates a credential, or returns the one that was created with the
// same idempotency key before.
func (s *generatorService) Generate(ctx context.Context, request *pb.GenerateRequest) (*pb.GenerateResponse, error) {
	call := request.GetContext()
	if err := checkGeneration(call, request.GetIdempotencyKey()); err != nil {
		return nil, err
	}

	return s.results.Do(ctx, idempotency.KeyOf(call, request.GetIdempotencyKey()), func(ctx context.Context) (response *pb.GenerateResponse, err error) {
		// No interceptor sees this goroutine's panics.
		defer func() {
			if panicked := recover(); panicked != nil {
				response, err = nil, s.panicked(pb.Generator_Generate_FullMethodName, panicked)
			}
		}()

		return s.generate(ctx, call, request.GetIdempotencyKey())
	})
}

func (s *generatorService) generate(ctx context.Context, call *pb.CallContext, key string) (*pb.GenerateResponse, error) {
	var generated provider.Generated

	err := use(ctx, s.sessions, call, nil, func(instance kind.Instance) (err error) {
		generator, ok := instance.(provider.Generator)
		if !ok {
			return provider.Unsupported("%s does not generate credentials", call.GetConfig().GetKind())
		}

		generated, err = generator.Generate(ctx, provider.Generation{IdempotencyKey: key})

		return err
	})
	if err != nil {
		return nil, err
	}

	return generatedOf(generated)
}

// generatedOf checks a credential and returns its message.
func generatedOf(generated provider.Generated) (*pb.GenerateResponse, error) {
	response := &pb.GenerateResponse{State: generated.State}
	size := 0

	for _, key := range slices.Sorted(maps.Keys(generated.Values)) {
		if key == "" || !utf8.ValidString(key) {
			return nil, defect("the provider has a defect: it generated a credential with a key that is empty or not UTF-8")
		}

		size += len(key) + len(generated.Values[key])
		response.Entries = append(response.Entries, &pb.SecretEntry{Key: key, Value: generated.Values[key]})
	}

	switch {
	case len(response.GetEntries()) == 0:
		return nil, defect("the provider has a defect: it generated a credential without a value")
	case size > maxGeneratedBytes:
		return nil, tooLarge("the credential has %d bytes, more than %d", size, maxGeneratedBytes)
	case len(generated.State) > maxStateBytes:
		return nil, tooLarge("the state of the credential has %d bytes, more than %d", len(generated.State), maxStateBytes)
	}

	if !generated.ExpiresAt.IsZero() {
		response.ExpiresAt = timestamppb.New(generated.ExpiresAt)
		if !response.GetExpiresAt().IsValid() {
			return nil, defect("the provider has a defect: it generated a credential that expires at no valid time")
		}
	}

	return response, nil
}

// Cleanup revokes a credential, with the config of the snapshot where there is
// one.
func (s *generatorService) Cleanup(ctx context.Context, request *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	call := request.GetContext()
	if err := checkGeneration(call, request.GetIdempotencyKey()); err != nil {
		return nil, err
	}

	if size := len(request.GetState()); size > maxStateBytes {
		return nil, tooLarge("the state has %d bytes, more than %d", size, maxStateBytes)
	}

	key := idempotency.KeyOf(call, request.GetIdempotencyKey())
	cleanup := provider.Cleanup{IdempotencyKey: request.GetIdempotencyKey(), State: request.GetState()}

	// A cleanup that runs before the generation has ended finds nothing to revoke.
	if s.results.Running(key) {
		return nil, provider.Unavailable("the credential is being generated: retry when that has ended")
	}

	if len(cleanup.State) == 0 {
		cleanup.State = s.results.State(key)
	}

	err := use(ctx, s.sessions, call, request.GetConfigSnapshot(), func(instance kind.Instance) error {
		cleaner, ok := instance.(provider.Cleaner)
		if !ok {
			return provider.Unsupported("%s does not clean up", call.GetConfig().GetKind())
		}

		return cleaner.Cleanup(ctx, cleanup)
	})
	if err != nil {
		return nil, err
	}

	s.results.Drop(key)

	return &pb.CleanupResponse{}, nil
}

// checkGeneration checks the context and the key of a generator's call.
func checkGeneration(call *pb.CallContext, key string) error {
	if err := checkUse(call, generatorKinds()); err != nil {
		return err
	}

	switch {
	case key == "":
		return provider.InvalidRequest("idempotency_key is empty")
	case len(key) > maxIdempotencyKey:
		return provider.InvalidRequest("idempotency_key has %d bytes, more than %d", len(key), maxIdempotencyKey)
	default:
		return nil
	}
}

func defect(message string) error {
	return &provider.Error{Code: codes.Internal, Reason: pb.ReasonInternal, Message: message}
}
