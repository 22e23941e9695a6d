package store

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"
)

// Read reads each key and version once, however many of its properties are read.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	return document.Read(ctx, reads, s.fetch)
}

func (s *Store) fetch(ctx context.Context, key, version string, metadata bool) (document.Document, error) {
	from, err := s.engine.locate(key, version, metadata)
	if err != nil {
		return document.Document{}, err
	}

	token, err := s.login.token(ctx)
	if err != nil {
		return document.Document{}, err
	}

	client, err := as(s.client, token)
	if err != nil {
		return document.Document{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	// Not ReadWithData, which does not distinguish the kinds of 404.
	response, err := client.Logical().ReadRawWithDataWithContext(ctx, from.path, from.query)
	if response != nil {
		defer response.Body.Close()
	}

	if err != nil {
		return document.Document{}, s.refusal(ctx, client, "read", from, key, version, response, err)
	}

	secret, err := api.ParseSecret(response.Body)
	if err != nil {
		return document.Document{}, unreadable("read secret \""+key+"\"", err)
	}

	return from.document(key, version, secret)
}

// refusal converts an error response. Vault answers 403 both for a token that has
// expired and for one without the right to the path; only a lookup of the token
// shows the difference.
func (s *Store) refusal(ctx context.Context, client *api.Client, verb string, from location, key, version string, response *api.Response, err error) error {
	typed := provider.AsError(requestError(verb+" secret \""+key+"\"", err))

	switch {
	case response == nil:
	case response.StatusCode == http.StatusNotFound:
		body, readErr := io.ReadAll(response.Body)
		if readErr != nil {
			return typed
		}

		return s.absence(ctx, client, from, key, version, body)
	case typed.Code == codes.ResourceExhausted:
		typed.RetryAfter = retryAfter(response.Header)
	case typed.Code == accessDenied && !s.login.valid(ctx):
		return s.ended()
	}

	return typed
}

// absence converts a response 404. An engine of version 1 returns the same response
// for a secret that does not exist and for a path of version 2; the engine's version
// then decides, if the token may read it.
func (s *Store) absence(ctx context.Context, client *api.Client, from location, key, version string, body []byte) error {
	err := from.absence(key, version, body)
	if !from.v2 || provider.AsError(err).Code != codes.NotFound {
		return err
	}

	if s.version(ctx, client, from.mount) == "1" {
		return provider.InvalidConfig("cannot read secret %q: the engine at %q is of version 1, spec.version says v2", key, from.mount)
	}

	return err
}

// version returns the version of the engine at a mount, which is read once; empty if
// it cannot be read.
func (s *Store) version(ctx context.Context, client *api.Client, mount string) string {
	s.mu.Lock()
	known, asked := s.versions[mount]
	s.mu.Unlock()

	if asked {
		return known
	}

	secret, err := client.Logical().ReadWithContext(ctx, "sys/internal/ui/mounts/"+mount)

	var response *api.ResponseError
	if err != nil && !errors.As(err, &response) {
		return ""
	}

	var version string

	if secret != nil && secret.Data["type"] == "kv" {
		options, _ := secret.Data["options"].(map[string]any)
		// An engine without options is of version 1.
		if version, _ = options["version"].(string); version == "" {
			version = "1"
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.versions[mount] = version

	return version
}
