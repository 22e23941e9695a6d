package measure

import (
	"regexp"
	"strings"
)

// Kinds of requests at a Vault.
const (
	// BackendRead reads a secret.
	BackendRead = "reads"
	// BackendLogin gets or prolongs a token.
	BackendLogin = "logins"
	// BackendLookup validates a token.
	BackendLookup = "lookups"
	// BackendOther is everything else.
	BackendOther = "other"
)

var login = regexp.MustCompile(`^auth/[^/]+/login(/|$)`)

// BackendKind returns the kind of a request, given as "METHOD /v1/path".
func BackendKind(request string) string {
	method, path, _ := strings.Cut(request, " ")
	path = strings.TrimPrefix(path, "/v1/")

	switch {
	case login.MatchString(path), path == "auth/token/renew-self":
		return BackendLogin
	case path == "auth/token/lookup-self":
		return BackendLookup
	case method == "GET" && !strings.HasPrefix(path, "sys/") && !strings.HasPrefix(path, "auth/"):
		return BackendRead
	default:
		return BackendOther
	}
}

// BackendKinds sums requests up by kind.
func BackendKinds(requests Counts) Counts {
	kinds := Counts{}
	for request, n := range requests {
		kinds[BackendKind(request)] += n
	}

	return kinds
}
