package store

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

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
		{why: "version 1 has no data", mount: "kv", kv: v2alpha1.KVv1, key: "data/app", want: "kv/data/app"},
		{why: "a version", mount: "secret", key: "app", version: "12", want: "secret/data/app?version=12"},
		{why: "metadata has a path of its own", mount: "secret", key: "app", metadata: true, want: "secret/metadata/app"},

		{why: "a key without a mount", key: "app", err: "names no mount"},
		{why: "nobody leaves the mount", mount: "secret", key: "../sys/policy", err: "empty part, or . or .."},
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
		{why: "no answer", from: v2, code: codes.NotFound},
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

func TestRequestError(t *testing.T) {
	t.Parallel()

	for status, want := range map[int]codes.Code{
		http.StatusNotFound: codes.NotFound, http.StatusForbidden: codes.PermissionDenied, http.StatusUnauthorized: codes.PermissionDenied,
		http.StatusTooManyRequests: codes.ResourceExhausted, http.StatusBadRequest: codes.InvalidArgument,
		http.StatusInternalServerError: codes.Unavailable, http.StatusServiceUnavailable: codes.Unavailable,
	} {
		err := requestError("read", &api.ResponseError{StatusCode: status, Errors: []string{"because\n\tof this"}})
		if got := provider.AsError(err); got.Code != want || !strings.HasSuffix(got.Message, "because of this") {
			t.Errorf("%d becomes %v: %s", status, got.Code, got.Message)
		}
	}

	if got := provider.AsError(requestError("read", errors.New("connection refused"))); got.Code != codes.Unavailable {
		t.Errorf("no answer becomes %v", got.Code)
	}
}
