package server

import (
	"context"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
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

	err := s.use(ctx, call, func(store provider.Store) (err error) {
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

	err := s.use(ctx, call, func(store provider.Store) (err error) {
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

// SecretExists tells whether a secret is there.
func (s *storeService) SecretExists(ctx context.Context, request *pb.SecretExistsRequest) (*pb.SecretExistsResponse, error) {
	call := request.GetContext()
	if err := checkKey(call, request.GetKey()); err != nil {
		return nil, err
	}

	var exists bool

	err := s.use(ctx, call, func(store provider.Store) (err error) {
		checker, ok := store.(provider.Checker)
		if !ok {
			return provider.Unsupported("%s does not tell whether secrets exist", call.GetConfig().GetKind())
		}

		exists, err = checker.Exists(ctx, request.GetKey(), request.GetProperty())

		return err
	})
	if err != nil {
		return nil, err
	}

	return &pb.SecretExistsResponse{Exists: exists}, nil
}

// use calls the call's store. One whose login the backend refuses is made anew,
// once.
func (s *storeService) use(ctx context.Context, call *pb.CallContext, do func(provider.Store) error) error {
	fresh, err := s.once(ctx, call, do)
	if isRefusal(err) && !fresh {
		_, err = s.once(ctx, call, do)
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

func (s *storeService) once(ctx context.Context, call *pb.CallContext, do func(provider.Store) error) (fresh bool, err error) {
	session, err := s.sessions.Acquire(ctx, call)
	if err != nil {
		// The store could not be made: to make it again would say the same.
		return true, err
	}
	defer session.Release()

	err = do(session.Store)
	if isRefusal(err) {
		session.Discard()
	}

	return session.Fresh, err
}

func checkKey(call *pb.CallContext, key string) error {
	if err := checkUse(call); err != nil {
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
