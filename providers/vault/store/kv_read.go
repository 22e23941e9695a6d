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

// Read reads each key and version once, however many properties of it are
// asked for.
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

	// Not ReadWithData: it gives the same nothing for every kind of 404.
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

// refusal makes Vault's refusal one that the operator understands. Vault
// answers 403 both to a token that has ended and to one without the right to
// what was asked; only asking about the token tells them apart.
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

// absence is what Vault's answer 404 means. An engine of version 1 answers in
// the same way whether a secret is absent or was asked for as one of version 2;
// then the engine's version decides, where the token may see it.
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

// version of the engine at a mount, asked for once; empty where Vault does not
// tell.
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
		// An engine that was made without options is of version 1.
		if version, _ = options["version"].(string); version == "" {
			version = "1"
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.versions[mount] = version

	return version
}
