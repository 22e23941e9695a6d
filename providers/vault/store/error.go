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
	// maxText bounds the quoted part of Vault's own errors.
	maxText = 300
)

// requestError returns the error of a request to Vault, which the text names. It is
// never NotFound: only an engine's own response proves that a secret does not exist.
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

	// A response that is not in Vault's format is another server's, and could be any
	// page of the provider's network.
	because := brief(response.Errors)
	if because == "" || response.RawError {
		because = http.StatusText(response.StatusCode)
	}

	switch response.StatusCode {
	case http.StatusNotFound:
		return provider.InvalidConfig("cannot %s: Vault has no such path: %s", what, because)
	case http.StatusForbidden, http.StatusUnauthorized:
		return provider.AccessDenied("cannot %s: Vault refuses: %s", what, because)
	case http.StatusTooManyRequests:
		return provider.Throttled(0, "cannot %s: Vault throttles the requests: %s", what, because)
	case http.StatusBadRequest:
		return provider.InvalidRequest("cannot %s: Vault refuses: %s", what, because)
	default:
		return provider.Unavailable("cannot %s: Vault answers %d: %s", what, response.StatusCode, because)
	}
}

// unreadable returns the error of a response that cannot be decoded.
func unreadable(what string, err error) error {
	// Because of its size, or a timeout.
	if known := requestError(what, err); provider.AsError(known).Code != codes.Unavailable {
		return known
	}

	return provider.Unavailable("cannot %s: the server does not answer as Vault does", what)
}

// brief returns Vault's errors on one line of bounded length.
func brief(texts []string) string {
	text := strings.Join(strings.Fields(strings.Join(texts, "; ")), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}

	return text
}

// retryAfter returns the time after which Vault may be called again; 0 if the response
// has none.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}

	return time.Duration(seconds) * time.Second
}
