package store

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const metadataPath = "secret/metadata/app"

// owned is the metadata of a secret.
func owned(marks string) string {
	return fmt.Sprintf(`{"data":{"current_version":3,"custom_metadata":%s}}`, marks)
}

const (
	ours   = `{"managed-by":"external-secrets","external-secrets-owner":"me"}`
	theirs = `{"managed-by":"external-secrets","external-secrets-owner":"you"}`
	before = `{"managed-by":"external-secrets"}`
)

func TestPush(t *testing.T) {
	t.Parallel()

	const conflict = `{"errors":["check-and-set parameter did not match the current version"]}`

	for _, c := range []struct {
		why      string
		metadata string
		push     provider.Push
		edit     func(*setup)
		vault    func(*vault)
		changed  bool
		code     codes.Code
		reason   string
		writes   []map[string]any
	}{
		{
			why: "what is there already is not written again: each write makes a version", metadata: owned(ours),
			push: provider.Push{Key: "app", Value: []byte(`{"c":"` + canary + `","b":2.50,"a":"1"}`), Owner: "me"},
		},
		{
			why: "a property is compared alone", metadata: owned(ours),
			push: provider.Push{Key: "app", Property: "a", Value: []byte("1"), Owner: "me"},
		},
		{
			why: "the rest of the secret stays, and nobody may have written in between", metadata: owned(ours), changed: true,
			push:   provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me"},
			writes: []map[string]any{{"data": map[string]any{"a": "new", "b": 2.5, "c": canary}, "options": map[string]any{"cas": 3.0}}},
		},
		{
			why: "another owner's", metadata: owned(theirs), push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me", Adopt: true},
			code: codes.FailedPrecondition, reason: pb.ReasonNotOwned,
		},
		{
			why: "nobody's", metadata: owned(`null`), push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me"},
			code: codes.FailedPrecondition, reason: pb.ReasonNotOwned,
		},
		{
			why: "nobody's, adopted as it is: only the mark is written", metadata: owned(`{"team":"a"}`), changed: true,
			push:   provider.Push{Key: "app", Property: "a", Value: []byte("1"), Owner: "me", Adopt: true},
			writes: []map[string]any{{"custom_metadata": map[string]any{"team": "a", "managed-by": "external-secrets", "external-secrets-owner": "me"}}},
		},
		{
			why: "what ESO v1 wrote is taken over", metadata: owned(before), changed: true,
			push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me"},
			writes: []map[string]any{
				{"custom_metadata": map[string]any{"managed-by": "external-secrets", "external-secrets-owner": "me"}},
				{"data": map[string]any{"a": "new", "b": 2.5, "c": canary}, "options": map[string]any{"cas": 3.0}},
			},
		},
		{
			why: "what was generated once stays, whosever it is", metadata: owned(theirs),
			push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me", IfNotExists: true},
		},
		{
			why: "metadata of the config's own", metadata: owned(ours), changed: true,
			push: provider.Push{
				Key: "app", Property: "a", Value: []byte("1"), Owner: "me",
				Settings: []byte(`{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":{"customMetadata":{"team":"a"}}}`),
			},
			writes: []map[string]any{{"custom_metadata": map[string]any{"team": "a", "managed-by": "external-secrets", "external-secrets-owner": "me"}}},
		},
		{
			why: "Vault keeps objects", metadata: owned(ours), push: provider.Push{Key: "app", Value: []byte("plain"), Owner: "me"},
			code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest,
		},
		{
			why: "somebody writes all the time: it is tried again, and not for ever", metadata: owned(ours),
			push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me"},
			vault: func(v *vault) {
				v.handle(appPath, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPut {
						http.Error(w, conflict, http.StatusBadRequest)

						return
					}

					fmt.Fprint(w, `{"data":{"data":{"a":"1"},"metadata":{"version":3}}}`)
				})
			},
			code: codes.Aborted, reason: pb.ReasonUnavailable,
			writes: []map[string]any{
				{"data": map[string]any{"a": "new"}, "options": map[string]any{"cas": 3.0}},
				{"data": map[string]any{"a": "new"}, "options": map[string]any{"cas": 3.0}},
				{"data": map[string]any{"a": "new"}, "options": map[string]any{"cas": 3.0}},
			},
		},
		{
			why: "whose it is must be known", metadata: "", push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me"},
			vault: func(v *vault) { v.refuse(metadataPath) }, code: codes.PermissionDenied, reason: pb.ReasonAccessDenied,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			if c.metadata != "" {
				v.answer(metadataPath, http.StatusOK, c.metadata)
			}

			if c.vault != nil {
				c.vault(v)
			}

			pushed, err := with(v).open(t).Push(t.Context(), c.push)
			if c.code != codes.OK {
				if got := errorOf(t, err); got.Code != c.code || got.Reason != c.reason {
					t.Errorf("%v %s: %s", got.Code, got.Reason, got.Message)
				}
			} else if err != nil || pushed.Changed != c.changed {
				t.Errorf("changed is %t, %v", pushed.Changed, err)
			}

			var writes []map[string]any

			for _, path := range []string{metadataPath, appPath} {
				for _, got := range v.got(path) {
					if got.body != nil {
						writes = append(writes, got.body)
					}
				}
			}

			if diff := cmp.Diff(c.writes, writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// A version 1 engine has one place for marks: a field of the secret. What a user
// keeps there is neither lost nor taken for marks.
func TestMarksOfVersion1(t *testing.T) {
	t.Parallel()

	marks := map[string]any{"managed-by": "external-secrets", "external-secrets-owner": "me"}

	for _, c := range []struct {
		why    string
		holds  string
		push   provider.Push
		code   codes.Code
		reason string
		want   string
		writes []map[string]any
	}{
		{
			why: "marks lie beside the fields", push: provider.Push{Value: []byte(`{"a":"1"}`)},
			writes: []map[string]any{{"a": "1", marksKey: marks}},
		},
		{
			why: "a value with a field in their place", push: provider.Push{Value: []byte(`{"a":"1","custom_metadata":{"team":"a"}}`)},
			code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest, want: "custom_metadata",
		},
		{
			why: "a field in their place is none of theirs even where it looks so", holds: `{"a":"1","custom_metadata":` + ours + `}`,
			push: provider.Push{Value: []byte(`{"a":"2","custom_metadata":` + ours + `}`)},
			code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest, want: "custom_metadata",
		},
		{
			why: "a property in their place", holds: `{"a":"1","custom_metadata":` + ours + `}`,
			push: provider.Push{Property: "custom_metadata", Value: []byte("x")},
			code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest, want: "custom_metadata",
		},
		{
			why: "its name written in another way", push: provider.Push{Value: []byte(`{"custom\u005fmetadata":{"team":"a"}}`)},
			code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest, want: "custom_metadata",
		},
		{
			why: "a user's text is not overwritten by adopting", holds: `{"a":"1","custom_metadata":"mine"}`,
			push: provider.Push{Property: "a", Value: []byte("2"), Adopt: true},
			code: codes.FailedPrecondition, reason: pb.ReasonNotOwned, want: "rename the field",
		},
		{
			why: "nor are a user's entries", holds: `{"a":"1","custom_metadata":{"team":"a"}}`,
			push: provider.Push{Value: []byte(`{"a":"2"}`), Adopt: true},
			code: codes.FailedPrecondition, reason: pb.ReasonNotOwned, want: "rename the field",
		},
		{
			why: "nor what no mark can be, beside a mark", holds: `{"a":"1","custom_metadata":{"managed-by":"external-secrets","n":1}}`,
			push: provider.Push{Value: []byte(`{"a":"2"}`), Adopt: true},
			code: codes.FailedPrecondition, reason: pb.ReasonNotOwned, want: "rename the field",
		},
		{
			why: "what carries nothing is adopted", holds: `{"a":"1"}`, push: provider.Push{Property: "b", Value: []byte("2"), Adopt: true},
			writes: []map[string]any{{"a": "1", "b": "2", marksKey: marks}},
		},
		{
			why: "what ESO v1 wrote is taken over", holds: `{"a":"1","custom_metadata":` + before + `}`, push: provider.Push{Property: "a", Value: []byte("2")},
			writes: []map[string]any{{"a": "2", marksKey: marks}},
		},
		{
			why: "the same again is not written", holds: `{"a":"1","custom_metadata":` + ours + `}`, push: provider.Push{Value: []byte(`{"a":"1"}`)},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			v.handle("secret/app", func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPut:
					w.WriteHeader(http.StatusNoContent)
				case c.holds == "":
					http.Error(w, `{"errors":[]}`, http.StatusNotFound)
				default:
					fmt.Fprintf(w, `{"data":%s}`, c.holds)
				}
			})

			c.push.Key, c.push.Owner = "app", "me"

			_, err := with(v, func(s *setup) { s.spec.Version = v2alpha1.KVv1 }).open(t).Push(t.Context(), c.push)
			if c.code != codes.OK {
				if got := errorOf(t, err); got.Code != c.code || got.Reason != c.reason || !strings.Contains(got.Message, c.want) {
					t.Errorf("%v %s: %s", got.Code, got.Reason, got.Message)
				}
			} else if err != nil {
				t.Error(err)
			}

			var writes []map[string]any

			for _, got := range v.got("secret/app") {
				if got.body != nil {
					writes = append(writes, got.body)
				}
			}

			if diff := cmp.Diff(c.writes, writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why      string
		metadata string
		deletion provider.Deletion
		edit     func(*setup)
		changed  bool
		code     codes.Code
		want     string
	}{
		{why: "all versions and the metadata go", metadata: owned(ours), deletion: provider.Deletion{Key: "app", Owner: "me"}, changed: true, want: "DELETE secret/metadata/app"},
		{
			why: "or the latest version, which can be restored", metadata: owned(ours), deletion: provider.Deletion{Key: "app", Owner: "me"}, changed: true, want: "DELETE secret/data/app",
			edit: func(s *setup) { s.spec.Deletion = v2alpha1.VaultSoftDelete },
		},
		{why: "a property leaves the others", metadata: owned(ours), deletion: provider.Deletion{Key: "app", Property: "a", Owner: "me"}, changed: true, want: "PUT secret/data/app"},
		{why: "a property that is not there", metadata: owned(ours), deletion: provider.Deletion{Key: "app", Property: "z", Owner: "me"}},
		{why: "another owner's stays", metadata: owned(theirs), deletion: provider.Deletion{Key: "app", Owner: "me"}, code: codes.FailedPrecondition},
		{why: "nobody's stays", metadata: owned(`null`), deletion: provider.Deletion{Key: "app", Owner: "me"}, code: codes.FailedPrecondition},
		{why: "what is absent is no error", deletion: provider.Deletion{Key: "none", Owner: "me"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			var done []string

			v := newVault(t)
			record := func(path, answer string) {
				v.handle(path, func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet {
						done = append(done, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1/"))
					}

					fmt.Fprint(w, answer)
				})
			}
			record(appPath, `{"data":{"data":{"a":"1","b":"2"},"metadata":{"version":3}}}`)
			record(metadataPath, c.metadata)

			s := with(v)
			if c.edit != nil {
				c.edit(s)
			}

			changed, err := s.open(t).Delete(t.Context(), c.deletion)
			if c.code != codes.OK {
				if got := errorOf(t, err); got.Code != c.code || got.Reason != pb.ReasonNotOwned {
					t.Errorf("%v %s: %s", got.Code, got.Reason, got.Message)
				}
			} else if err != nil || changed != c.changed {
				t.Errorf("changed is %t, %v", changed, err)
			}

			if got := strings.Join(done, " "); got != c.want {
				t.Errorf("done: %s", got)
			}
		})
	}
}
