package server

import (
	"context"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/kind"
	"github.com/external-secrets/eso/sdk/internal/session"
	"github.com/external-secrets/eso/sdk/provider"
)

// PushSecret writes a secret.
func (s *storeService) PushSecret(ctx context.Context, request *pb.PushSecretRequest) (*pb.PushSecretResponse, error) {
	call := request.GetContext()
	if err := checkWrite(call, request.GetKey(), request.GetOwner()); err != nil {
		return nil, err
	}

	push := provider.Push{
		Key: request.GetKey(), Property: request.GetProperty(), Value: request.GetValue(),
		Settings: request.GetMetadata(), Owner: request.GetOwner(), Adopt: request.GetAdopt(),
	}

	switch request.GetUpdatePolicy() {
	case pb.UpdatePolicy_UPDATE_POLICY_UNSPECIFIED, pb.UpdatePolicy_UPDATE_POLICY_REPLACE:
	case pb.UpdatePolicy_UPDATE_POLICY_IF_NOT_EXISTS:
		push.IfNotExists = true
	default:
		return nil, provider.InvalidRequest("update_policy is %v", request.GetUpdatePolicy())
	}

	var pushed provider.Pushed

	err := use(ctx, s.sessions, call, nil, func(store kind.Instance) (err error) {
		pusher, ok := store.(provider.Pusher)
		if !ok {
			return provider.Unsupported("%s does not push secrets", call.GetConfig().GetKind())
		}

		pushed, err = pusher.Push(ctx, push)

		return err
	})
	if err != nil {
		return nil, err
	}

	return &pb.PushSecretResponse{Changed: pushed.Changed, Revision: revisionOf(pushed.Revision)}, nil
}

// DeleteSecret deletes a secret.
func (s *storeService) DeleteSecret(ctx context.Context, request *pb.DeleteSecretRequest) (*pb.DeleteSecretResponse, error) {
	call := request.GetContext()
	if err := checkWrite(call, request.GetKey(), request.GetOwner()); err != nil {
		return nil, err
	}

	var changed bool

	err := use(ctx, s.sessions, call, nil, func(store kind.Instance) (err error) {
		deleter, ok := store.(provider.Deleter)
		if !ok {
			return provider.Unsupported("%s does not delete secrets", call.GetConfig().GetKind())
		}

		changed, err = deleter.Delete(ctx, provider.Deletion{Key: request.GetKey(), Property: request.GetProperty(), Owner: request.GetOwner()})

		return err
	})
	if err != nil {
		return nil, err
	}

	return &pb.DeleteSecretResponse{Changed: changed}, nil
}

// SecretExists reports whether a secret exists.
func (s *storeService) SecretExists(ctx context.Context, request *pb.SecretExistsRequest) (*pb.SecretExistsResponse, error) {
	call := request.GetContext()
	if err := checkKey(call, request.GetKey()); err != nil {
		return nil, err
	}

	var exists bool

	err := use(ctx, s.sessions, call, nil, func(store kind.Instance) (err error) {
		checker, ok := store.(provider.Checker)
		if !ok {
			return provider.Unsupported("%s does not report whether secrets exist", call.GetConfig().GetKind())
		}

		exists, err = checker.Exists(ctx, request.GetKey(), request.GetProperty())

		return err
	})
	if err != nil {
		return nil, err
	}

	return &pb.SecretExistsResponse{Exists: exists}, nil
}

// use calls the instance of a call, constructed from the config snapshot where
// that is not empty. Where the backend refuses the login of an instance that was
// used before, do is called once more with a new one.
func use(ctx context.Context, sessions *session.Sessions, call *pb.CallContext, snapshot []byte, do func(kind.Instance) error) error {
	fresh, err := useOnce(ctx, sessions, call, snapshot, do)
	if isRefusal(err) && !fresh {
		_, err = useOnce(ctx, sessions, call, snapshot, do)
	}

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return provider.AsError(ctx.Err())
	default:
		return provider.AsError(err)
	}
}

func useOnce(ctx context.Context, sessions *session.Sessions, call *pb.CallContext, snapshot []byte, do func(kind.Instance) error) (fresh bool, err error) {
	acquired, err := sessions.AcquireSnapshot(ctx, call, snapshot)
	if err != nil {
		// The construction failed: it would fail in the same way again.
		return true, err
	}
	defer acquired.Release()

	err = do(acquired.Instance)
	if isRefusal(err) {
		acquired.Discard()
	}

	return acquired.Fresh, err
}

func checkKey(call *pb.CallContext, key string) error {
	if err := checkUse(call, storeKinds()); err != nil {
		return err
	}

	if key == "" {
		return provider.InvalidRequest("key is empty")
	}

	return nil
}

func checkWrite(call *pb.CallContext, key, owner string) error {
	if err := checkKey(call, key); err != nil {
		return err
	}

	if owner == "" {
		return provider.InvalidRequest("owner is empty")
	}

	return nil
}
