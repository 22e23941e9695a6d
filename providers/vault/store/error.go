package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	accessDenied = codes.PermissionDenied
	// maxText bounds what is quoted of Vault's own words.
	maxText = 300
)

// requestError says what became of a request to Vault, which the text names. It
// never says that a secret does not exist: only an engine's own answer proves
// that.
func requestError(what string, err error) error {
	for _, ended := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, ended) {
			return fmt.Errorf("cannot %s: %w", what, ended)
		}
	}

	// The store's own limit of requests.
	if typed := (*provider.Error)(nil); errors.As(err, &typed) {
		return typed
	}

	if large, ok := backend.TooLarge(err); ok {
		large.Message = "cannot " + what + ": " + large.Message

		return large
	}

	var response *api.ResponseError
	if !errors.As(err, &response) {
		because, _ := backend.Reason(err, backend.Fields{Server: "spec.server", CA: "spec.caBundle or spec.caProvider"})

		return provider.Unavailable("cannot %s: Vault does not answer: %s", what, because)
	}

	// What is not in Vault's form comes from something else, and could be any
	// page of the network that the provider is in.
	because := brief(response.Errors)
	if because == "" || response.RawError {
		because = http.StatusText(response.StatusCode)
	}

	switch response.StatusCode {
	case http.StatusNotFound:
		return provider.InvalidConfig("cannot %s: Vault knows no such path: %s", what, because)
	case http.StatusForbidden, http.StatusUnauthorized:
		return provider.AccessDenied("cannot %s: Vault refuses: %s", what, because)
	case http.StatusTooManyRequests:
		return provider.Throttled(0, "cannot %s: Vault is asked too often: %s", what, because)
	case http.StatusBadRequest:
		return provider.InvalidRequest("cannot %s: Vault refuses: %s", what, because)
	default:
		return provider.Unavailable("cannot %s: Vault answers %d: %s", what, response.StatusCode, because)
	}
}

// unreadable says what became of an answer that is not understood.
func unreadable(what string, err error) error {
	// Its size, or the time that it took.
	if known := requestError(what, err); provider.AsError(known).Code != codes.Unavailable {
		return known
	}

	return provider.Unavailable("cannot %s: the server does not answer as Vault does", what)
}

// brief puts Vault's words on one line of bounded length.
func brief(texts []string) string {
	text := strings.Join(strings.Fields(strings.Join(texts, "; ")), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}

	return text
}

// retryAfter is when a throttled caller may come again, as far as Vault said.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}

	return time.Duration(seconds) * time.Second
}
