package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

func TestLocate(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why          string
		mount        string
		kv           v2alpha1.KVVersion
		key, version string
		metadata     bool
		want         string
		err          string
	}{
		{why: "below the mount", mount: "secret", key: "app/db", want: "secret/data/app/db"},
		{why: "a key that repeats the mount", mount: "secret", key: "secret/app/db", want: "secret/data/app/db"},
		{why: "a key as the API has it", mount: "secret", key: "secret/data/app/db", want: "secret/data/app/db"},
		{why: "slashes around the mount and the key", mount: "/team/kv/", key: "/app/", want: "team/kv/data/app"},
		{why: "without a mount the key begins with it", key: "secret/app", want: "secret/data/app"},
		{why: "so it does as the API has it", key: "secret/data/app", want: "secret/data/app"},
		{why: "a key that repeats no mount may itself begin with data", mount: "secret", key: "data/app", want: "secret/data/data/app"},
		{why: "a mount of several parts is repeated whole", mount: "team/kv", key: "team/kv/data/app", want: "team/kv/data/app"},
		{why: "the mount's name alone is a secret's", mount: "secret", key: "secret", want: "secret/data/secret"},
		{why: "a name that only begins like the mount", mount: "secret", key: "secrets/app", want: "secret/data/secrets/app"},
		{why: "version 1 has no data", mount: "kv", kv: v2alpha1.KVv1, key: "data/app", want: "kv/data/app"},
		{why: "version 1, as the API has it", mount: "kv", kv: v2alpha1.KVv1, key: "kv/data/app", want: "kv/data/app"},
		{why: "version 1 without a mount", kv: v2alpha1.KVv1, key: "kv/app", want: "kv/app"},
		{why: "what Vault reserves may be a part further down", mount: "secret", key: "auth/token", want: "secret/data/auth/token"},
		{why: "a version", mount: "secret", key: "app", version: "12", want: "secret/data/app?version=12"},
		{why: "metadata has a path of its own", mount: "secret", key: "app", metadata: true, want: "secret/metadata/app"},

		{why: "a key without a mount", key: "app", err: "names no mount"},
		{why: "a key must not leave the mount", mount: "secret", key: "../sys/policy", err: "empty part, or . or .."},
		{why: "nor by a mount that the key names", kv: v2alpha1.KVv1, key: "../v1/secret/app", err: "empty part, or . or .."},
		{why: "nor by the config's", mount: "secret/..", key: "app", err: "empty part, or . or .."},
		{why: "a key that names the mount would read the store's own token", kv: v2alpha1.KVv1, key: "auth/token/lookup-self", err: "no key/value engine"},
		{why: "or Vault's configuration", kv: v2alpha1.KVv1, key: "/sys/mounts", err: "no key/value engine"},
		{why: "or its users", key: "identity/entity", err: "no key/value engine"},
		{why: "or what the token alone may see", key: "cubbyhole/a", err: "no key/value engine"},
		{why: "nor in the middle", mount: "secret", key: "a/../../b", err: "empty part, or . or .."},
		{why: "an empty part", mount: "secret", key: "a//b", err: "empty part"},
		{why: "nothing at all", mount: "secret", key: "/", err: "empty part"},
		{why: "a version that is no number", mount: "secret", key: "a", version: "latest", err: `version "latest"`},
		{why: "version 0 means the latest to Vault", mount: "secret", key: "a", version: "0", err: `version "0"`},
		{why: "an engine without versions", mount: "kv", kv: v2alpha1.KVv1, key: "a", version: "1", err: "keeps no versions"},
		{why: "an engine without metadata", mount: "kv", kv: v2alpha1.KVv1, key: "a", metadata: true, err: "keeps no metadata"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			got, err := engine{mount: c.mount, version: c.kv}.locate(c.key, c.version, c.metadata)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("locate = %+v, %v; want %q", got, err, c.err)
				}

				return
			}

			path := got.path
			if len(got.query) > 0 {
				path += "?version=" + got.query["version"][0]
			}

			if err != nil || path != c.want {
				t.Errorf("locate = %q, %v; want %q", path, err, c.want)
			}
		})
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()

	v2 := location{v2: true}

	for _, c := range []struct {
		why      string
		from     location
		answer   map[string]any
		raw      string
		revision string
		code     codes.Code
	}{
		{
			why: "version 2", from: v2, raw: `{"a":"<1>","n":1e3}`, revision: "3@then",
			answer: map[string]any{"data": map[string]any{"a": "<1>", "n": json.Number("1e3")}, "metadata": map[string]any{"version": json.Number("3"), "created_time": "then"}},
		},
		{why: "version 1", from: location{}, answer: map[string]any{"data": "is a key like any other"}, raw: `{"data":"is a key like any other"}`},
		{why: "metadata", from: location{v2: true, metadata: true}, answer: map[string]any{"custom_metadata": map[string]any{"team": "a"}}, raw: `{"team":"a"}`},
		{why: "no metadata", from: location{v2: true, metadata: true}, answer: map[string]any{"custom_metadata": nil}, raw: `{}`},
		{why: "a version that was deleted", from: v2, answer: map[string]any{"data": nil, "metadata": map[string]any{"deletion_time": "then"}}, code: codes.NotFound},
		{why: "a version 1 engine read as version 2 proves nothing", from: v2, answer: map[string]any{"password": "x"}, code: codes.FailedPrecondition},
		{why: "a whole version of null", from: v2, answer: map[string]any{"data": nil, "metadata": map[string]any{"version": json.Number("1")}}, code: codes.NotFound},
		{why: "an answer without data proves nothing", from: v2, code: codes.Unavailable},
		{why: "nor does one of version 1", from: location{}, code: codes.Unavailable},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			var secret *api.Secret
			if c.answer != nil {
				secret = &api.Secret{Data: c.answer}
			}

			got, err := c.from.document("app", "", secret)
			if c.code != codes.OK {
				if err == nil || provider.AsError(err).Code != c.code {
					t.Fatalf("err = %v; want %s", err, c.code)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(c.raw, string(got.Raw)); diff != "" {
				t.Errorf("raw (-want +got):\n%s", diff)
			}

			if got.Revision == "" || (c.revision != "" && got.Revision != c.revision) {
				t.Errorf("revision is %q, not %q", got.Revision, c.revision)
			}
		})
	}
}

// The bodies are those of Vault 1.21.
func TestAbsence(t *testing.T) {
	t.Parallel()

	v1, v2 := location{mount: "kv"}, location{mount: "kv", v2: true}

	for _, c := range []struct {
		why  string
		from location
		body string
		code codes.Code
		want string
	}{
		{why: "no such secret", from: v2, body: `{"errors":[]}`, code: codes.NotFound, want: "does not exist"},
		{why: "no such secret of version 1", from: v1, body: `{"errors":[]}`, code: codes.NotFound, want: "does not exist"},
		{
			why: "a version that was deleted", from: v2, code: codes.NotFound, want: "was deleted",
			body: `{"request_id":"d7","data":{"data":null,"metadata":{"created_time":"then","deletion_time":"later","destroyed":false,"version":1}},"warnings":null,"mount_type":""}`,
		},
		{
			why: "a mount that is not there: all its secrets would be taken for deleted", from: v2, code: codes.FailedPrecondition, want: "no engine at \"kv\": no handler for route",
			body: `{"errors":["no handler for route \"kv/data/x\". route entry not found."]}`,
		},
		{
			why: "version 1 asked of an engine of version 2: likewise", from: v1, code: codes.FailedPrecondition, want: "spec.version do not fit the engine: Invalid path for a versioned",
			body: `{"request_id":"bd","data":null,"warnings":["Invalid path for a versioned K/V secrets engine. See the API docs"],"mount_type":""}`,
		},
		{why: "a gateway's page", from: v2, body: "<html>404 page not found</html>", code: codes.Unavailable, want: "not as Vault does"},
		{why: "a gateway's empty page", from: v2, body: "", code: codes.Unavailable, want: "not as Vault does"},
		{why: "a gateway's JSON", from: v2, body: `{"message":"no Route matched with those values"}`, code: codes.Unavailable, want: "not as Vault does"},
		{why: "null of another server", from: v2, body: `null`, code: codes.Unavailable, want: "not as Vault does"},
		{why: "errors that are null are not none", from: v2, body: `{"errors":null}`, code: codes.Unavailable, want: "not as Vault does"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			got := provider.AsError(c.from.absence("app", "", []byte(c.body)))
			if got.Code != c.code || !strings.Contains(got.Message, c.want) {
				t.Errorf("%v: %s", got.Code, got.Message)
			}
		})
	}

	if got := v2.absence("app", "7", []byte(`{"errors":[]}`)); !strings.Contains(got.Error(), `secret "app" has no version 7`) {
		t.Errorf("a version that is not there: %v", got)
	}
}

// One key that names a mount which does not fit must not speak for the whole
// store.
func TestMisfitIsOfTheKeyThatNamesTheMount(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why   string
		mount string
		key   string
		store bool
	}{
		{"the config names the mount", "secret", "app", true},
		{"the key does", "", "secrte/app", false},
	} {
		from, err := engine{mount: c.mount}.locate(c.key, "", false)
		if err != nil {
			t.Fatal(err)
		}

		_, document := from.document(c.key, "", &api.Secret{Data: map[string]any{"data": "of version 1"}})

		for _, err := range []error{
			document,
			from.absence(c.key, "", []byte(`{"errors":["no handler for route"]}`)),
			from.absence(c.key, "", []byte(`{"warnings":["Invalid path for a versioned K/V secrets engine"]}`)),
		} {
			if got := provider.AsError(err); got.Code != codes.FailedPrecondition || got.StoreScope != c.store {
				t.Errorf("%s: of the store = %t: %v", c.why, got.StoreScope, got)
			}
		}
	}
}

func TestRequestError(t *testing.T) {
	t.Parallel()

	for status, want := range map[int]codes.Code{
		http.StatusNotFound: codes.FailedPrecondition, http.StatusForbidden: codes.PermissionDenied, http.StatusUnauthorized: codes.PermissionDenied,
		http.StatusTooManyRequests: codes.ResourceExhausted, http.StatusBadRequest: codes.InvalidArgument,
		http.StatusInternalServerError: codes.Unavailable, http.StatusServiceUnavailable: codes.Unavailable, http.StatusMethodNotAllowed: codes.Unavailable,
	} {
		err := requestError("read", &api.ResponseError{StatusCode: status, Errors: []string{"because\n\tof this"}})
		if got := provider.AsError(err); got.Code != want || !strings.HasSuffix(got.Message, "because of this") {
			t.Errorf("%d becomes %v: %s", status, got.Code, got.Message)
		}
	}

	for _, c := range []struct {
		why  string
		err  error
		code codes.Code
		want string
	}{
		{"no answer", syscall.ECONNREFUSED, codes.Unavailable, "cannot read: Vault does not answer: connection refused"},
		{"no such name", fmt.Errorf("dial: %w", &net.DNSError{Name: canary, Server: "10.0.0.10", IsNotFound: true}), codes.Unavailable, "cannot read: Vault does not answer: no such host"},
		{"no answer of DNS", &net.DNSError{Name: canary, Server: "10.0.0.10", IsTimeout: true}, codes.Unavailable, "cannot read: Vault does not answer: the host's name cannot be resolved"},
		{"an unexpected error is not quoted", errors.New(canary), codes.Unavailable, "cannot read: Vault does not answer: the connection broke, or what came is no answer of HTTP"},
		{"the caller's deadline is not Vault's fault", fmt.Errorf("GET: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "cannot read: context deadline exceeded"},
		{"nor its going away", context.Canceled, codes.Canceled, "cannot read: context canceled"},
		{"no words", &api.ResponseError{StatusCode: http.StatusForbidden}, codes.PermissionDenied, "cannot read: Vault refuses: Forbidden"},
		{
			"a page that is not Vault's may be any of the provider's network", &api.ResponseError{StatusCode: http.StatusForbidden, RawError: true, Errors: []string{canary}},
			codes.PermissionDenied, "cannot read: Vault refuses: Forbidden",
		},
		{
			"a condition has no room for a book", &api.ResponseError{StatusCode: http.StatusInternalServerError, Errors: []string{strings.Repeat("é", maxText)}},
			codes.Unavailable, "cannot read: Vault answers 500: " + strings.Repeat("é", maxText/2) + "...",
		},
	} {
		if got := provider.AsError(requestError("read", c.err)); got.Code != c.code || got.Message != c.want {
			t.Errorf("%s: %v: %s", c.why, got.Code, got.Message)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "99999999999": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q is %s, not %s", text, got, want)
		}
	}
}
