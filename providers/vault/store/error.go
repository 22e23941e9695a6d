package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
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
		return provider.Unavailable("cannot %s: Vault does not answer: %s", what, reason(err))
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

// reason says why there is no answer. The libraries' own words quote what came
// in its place, and addresses that names lead to: a config's author, who chooses
// the server, could read the provider's network by them.
func reason(err error) string {
	var (
		dns     *net.DNSError
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		op      *net.OpError
		errno   syscall.Errno
		network net.Error
	)

	switch {
	case errors.As(err, &unknown):
		return "its certificate is of an unknown authority: set spec.caBundle or spec.caProvider"
	case errors.As(err, &host):
		return "its certificate is not for the host of spec.server"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "its certificate cannot be verified"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "it does not speak TLS: should spec.server begin with http://?"
	case errors.As(err, &op) && op.Op == "remote error":
		// An alert of TLS, of a list that the library has.
		return "it ends the TLS handshake: " + op.Err.Error()
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "the host's name cannot be resolved"
	case errors.As(err, &network) && network.Timeout():
		return "it takes too long"
	case errors.As(err, &errno):
		return errno.Error()
	default:
		return "the connection broke, or what came is no answer of Vault's"
	}
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
