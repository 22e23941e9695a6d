package store

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"
)

const accessDenied = codes.PermissionDenied

// requestError says what became of a request to Vault, which the text names.
func requestError(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}

	var response *api.ResponseError
	if !errors.As(err, &response) {
		return provider.Unavailable("cannot %s: Vault does not answer: %v", what, err)
	}

	because := strings.Join(response.Errors, "; ")
	if because == "" {
		because = http.StatusText(response.StatusCode)
	}

	because = strings.Join(strings.Fields(because), " ")

	switch response.StatusCode {
	case http.StatusNotFound:
		return provider.NotFound("cannot %s: %s", what, because)
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
