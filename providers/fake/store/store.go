package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/fake/api/v2alpha1"
)

// Store serves one Fake: its list, and what was pushed over it.
type Store struct {
	spec   v2alpha1.FakeSpec
	memory *memory
	// pushed is guarded by the memory.
	pushed map[string]written
}

var (
	_ provider.Reader  = (*Store)(nil)
	_ provider.Finder  = (*Store)(nil)
	_ provider.Pusher  = (*Store)(nil)
	_ provider.Deleter = (*Store)(nil)
	_ provider.Checker = (*Store)(nil)
)

// Read answers from the list.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	return document.Read(ctx, reads, s.fetch)
}

// Find returns the latest version of each secret whose key lies below the path,
// with its labels for tags; what was pushed has none.
func (s *Store) Find(ctx context.Context, query provider.Query, found func(provider.Found) error) error {
	if err := s.misbehave(ctx); err != nil {
		return err
	}

	told := map[string]bool{}

	for _, key := range s.keys() {
		told[key] = true

		if query.Path != nil && !strings.HasPrefix(key, *query.Path) || !query.Matches(key, nil) {
			continue
		}

		last, _ := s.latest(key)
		if err := found(provider.Found{Key: key, Value: last.value}); err != nil {
			return err
		}
	}

	for _, secret := range s.spec.Data {
		if last, ok := s.latest(secret.Key); ok && last.deleted {
			continue
		}

		if told[secret.Key] || (query.Path != nil && !strings.HasPrefix(secret.Key, *query.Path)) {
			continue
		}

		told[secret.Key] = true
		latest, _ := s.find(secret.Key, "")

		if !query.Matches(secret.Key, latest.Metadata) {
			continue
		}

		if err := found(provider.Found{Key: secret.Key, Value: raw(latest)}); err != nil {
			return err
		}
	}

	return nil
}

// Validate answers the config's error, where it has one.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	return provider.Validation{}, s.misbehave(ctx)
}

// Close has nothing to release.
func (s *Store) Close(context.Context) error { return nil }

func (s *Store) fetch(ctx context.Context, key, version string, metadata bool) (document.Document, error) {
	if err := s.misbehave(ctx); err != nil {
		return document.Document{}, err
	}

	if last, ok := s.latest(key); ok && version == "" {
		if last.deleted {
			return document.Document{}, provider.NotFound("secret %q does not exist: it was deleted", key)
		}

		value := last.value
		if metadata {
			value = []byte("{}")
		}

		return document.Document{Raw: value, Revision: revision(value)}, nil
	}

	found, known := s.find(key, version)
	if found == nil {
		if known {
			return document.Document{}, provider.NotFound("secret %q has no version %q", key, version)
		}

		return document.Document{}, provider.NotFound("secret %q does not exist", key)
	}

	value := raw(found)

	if metadata {
		labels := found.Metadata
		if labels == nil {
			labels = map[string]string{}
		}

		var err error
		if value, err = json.Marshal(labels); err != nil {
			return document.Document{}, err
		}
	}

	return document.Document{Raw: value, Revision: revision(value)}, nil
}

func revision(value []byte) string {
	sum := sha256.Sum256(value)

	return hex.EncodeToString(sum[:8])
}

func raw(secret *v2alpha1.FakeSecret) []byte {
	if secret.BinaryValue != nil {
		return secret.BinaryValue
	}

	return []byte(secret.Value)
}

// find returns the wanted version of a secret, the last one listed where version
// is empty, and whether the secret exists at all.
func (s *Store) find(key, version string) (found *v2alpha1.FakeSecret, known bool) {
	for i, secret := range s.spec.Data {
		if secret.Key != key {
			continue
		}

		known = true

		if version == "" || secret.Version == version {
			found = &s.spec.Data[i]
		}
	}

	return found, known
}

// misbehave takes the time and gives the error that the config asks for.
func (s *Store) misbehave(ctx context.Context) error {
	if s.spec.Latency != nil {
		select {
		case <-time.After(s.spec.Latency.Duration):
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	fault := s.spec.Error
	if fault == nil {
		return nil
	}

	message := fault.Message
	if message == "" {
		message = "the config asks for this error"
	}

	switch fault.Code {
	case codes.Unauthenticated.String():
		return provider.Unauthenticated("%s", message)
	case codes.PermissionDenied.String():
		return provider.AccessDenied("%s", message)
	case codes.ResourceExhausted.String():
		var after time.Duration
		if fault.RetryAfter != nil {
			after = fault.RetryAfter.Duration
		}

		return provider.Throttled(after, "%s", message)
	case codes.Internal.String():
		return &provider.Error{Code: codes.Internal, Reason: "INTERNAL", Message: message}
	default:
		return provider.Unavailable("%s", message)
	}
}
