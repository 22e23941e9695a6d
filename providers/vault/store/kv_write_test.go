package store

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/ownership"
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

// marksIn returns the marks of what owned made.
func marksIn(t *testing.T, metadata string) map[string]any {
	t.Helper()

	var answer struct {
		Data struct {
			Marks map[string]any `json:"custom_metadata"`
		} `json:"data"`
	}

	if err := json.Unmarshal([]byte(metadata), &answer); err != nil {
		t.Fatal(err)
	}

	return answer.Data.Marks
}

// kept is a secret of a version 2 engine, with check-and-set of the data and
// none of the metadata, as Vault has it.
type kept struct {
	mu      sync.Mutex
	version int
	data    map[string]any
	// known says that there are metadata, with marks or without.
	known bool
	marks map[string]any
	// between is called before each request, with its method and path, by the
	// server.
	between func(request string)
}

// serve makes the server answer of the secret, at some of its paths.
func (k *kept) serve(v *vault, paths ...string) {
	k.known = k.known || k.version > 0

	for _, path := range paths {
		v.handle(path, func(w http.ResponseWriter, r *http.Request) {
			if k.between != nil {
				k.between(r.Method + " " + path)
			}

			k.mu.Lock()
			defer k.mu.Unlock()

			var body struct {
				Data    map[string]any `json:"data"`
				Marks   map[string]any `json:"custom_metadata"`
				Options struct {
					CAS int `json:"cas"`
				} `json:"options"`
			}

			if r.Method == http.MethodPut {
				_ = json.NewDecoder(r.Body).Decode(&body)
			}

			switch {
			case r.Method == http.MethodPut && path == metadataPath:
				k.known, k.marks = true, body.Marks
				w.WriteHeader(http.StatusNoContent)
			case r.Method == http.MethodPut && body.Options.CAS != k.version:
				http.Error(w, conflict, http.StatusBadRequest)
			case r.Method == http.MethodPut:
				k.known, k.version, k.data = true, k.version+1, body.Data
				fmt.Fprintf(w, `{"data":{"version":%d}}`, k.version)
			case path == metadataPath && k.known:
				fmt.Fprintf(w, `{"data":{"current_version":%d,"custom_metadata":%s}}`, k.version, text(k.marks))
			case path != metadataPath && k.version > 0:
				fmt.Fprintf(w, `{"data":{"data":%s,"metadata":{"version":%d}}}`, text(k.data), k.version)
			default:
				http.Error(w, `{"errors":[]}`, http.StatusNotFound)
			}
		})
	}
}

// write is a write by another client without check-and-set; nil marks leave the
// metadata unchanged.
func (k *kept) write(data, marks map[string]any) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if data != nil {
		k.known, k.version, k.data = true, k.version+1, data
	}

	if marks != nil {
		k.known, k.marks = true, marks
	}
}

func (k *kept) owner() any {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.marks[ownership.OwnerTag]
}

func text(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}

	return string(encoded)
}

const conflict = `{"errors":["check-and-set parameter did not match the current version"]}`

func TestPush(t *testing.T) {
	t.Parallel()

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
			why: "an equal value is not written again: each write creates a version", metadata: owned(ours),
			push: provider.Push{Key: "app", Value: []byte(`{"c":"` + canary + `","b":2.50,"a":"1"}`), Owner: "me"},
		},
		{
			why: "a property is compared alone", metadata: owned(ours),
			push: provider.Push{Key: "app", Property: "a", Value: []byte("1"), Owner: "me"},
		},
		{
			why: "the other properties are kept, and no concurrent write is lost", metadata: owned(ours), changed: true,
			push:   provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me"},
			writes: []map[string]any{{"data": map[string]any{"a": "new", "b": 2.5, "c": canary}, "options": map[string]any{"cas": 3.0}}},
		},
		{
			why: "another owner's", metadata: owned(theirs), push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me", Adopt: true},
			code: codes.FailedPrecondition, reason: pb.ReasonNotOwned,
		},
		{
			why: "no owner", metadata: owned(`null`), push: provider.Push{Key: "app", Property: "a", Value: []byte("new"), Owner: "me"},
			code: codes.FailedPrecondition, reason: pb.ReasonNotOwned,
		},
		{
			why: "no owner, adopted unchanged: only the mark is written", metadata: owned(`{"team":"a"}`), changed: true,
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
			why: "another client writes continuously: the attempts are bounded", metadata: owned(ours),
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
				(&kept{version: 3, marks: marksIn(t, c.metadata)}).serve(v, metadataPath)
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

// A new secret is claimed by its mark, which any client can overwrite, and then by
// its data, of which one write wins: the loser's mark does not make it the owner.
func TestClaims(t *testing.T) {
	t.Parallel()

	const (
		putMark = "PUT " + metadataPath
		putData = "PUT " + appPath
	)

	var (
		mine   = map[string]any{ownership.ManagedTag: ownership.ManagedValue, ownership.OwnerTag: "me"}
		yours  = map[string]any{ownership.ManagedTag: ownership.ManagedValue, ownership.OwnerTag: "you"}
		theirs = map[string]any{"a": "theirs"}
		pushed = map[string]any{"a": "pushed"}
	)

	for _, c := range []struct {
		why    string
		secret *kept
		push   provider.Push
		// At the first such request, another client does this.
		at      string
		do      func(*kept)
		code    codes.Code
		changed bool
		data    map[string]any
		marks   map[string]any
	}{
		{
			why: "a secret that another client creates after it was marked belongs to that client, and loses the mark", secret: &kept{},
			at: putData, do: func(k *kept) { k.write(theirs, nil) },
			code: codes.FailedPrecondition, data: theirs, marks: map[string]any{},
		},
		{
			why: "their own metadata stay", secret: &kept{},
			at: putData, do: func(k *kept) {
				k.write(theirs, map[string]any{"team": "a", ownership.ManagedTag: ownership.ManagedValue, ownership.OwnerTag: "me"})
			},
			code: codes.FailedPrecondition, data: theirs, marks: map[string]any{"team": "a"},
		},
		{
			why: "one that is to be adopted is", secret: &kept{}, push: provider.Push{Adopt: true},
			at: putData, do: func(k *kept) { k.write(theirs, nil) },
			changed: true, data: pushed, marks: mine,
		},
		{
			why: "another owner that was faster keeps data and mark", secret: &kept{}, push: provider.Push{Adopt: true},
			at: putData, do: func(k *kept) { k.write(theirs, yours) },
			code: codes.FailedPrecondition, data: theirs, marks: yours,
		},
		{
			why: "another owner that was faster, and was marked over", secret: &kept{},
			at: putMark, do: func(k *kept) { k.write(theirs, yours) },
			code: codes.FailedPrecondition, data: theirs, marks: map[string]any{},
		},
		{
			why: "what is generated once is theirs, without a mark", secret: &kept{}, push: provider.Push{IfNotExists: true},
			at: putData, do: func(k *kept) { k.write(theirs, nil) },
			data: theirs, marks: map[string]any{},
		},
		{
			why: "another owner that loses may have marked it: the data decide", secret: &kept{},
			at: putData, do: func(k *kept) { k.write(nil, yours) },
			changed: true, data: pushed, marks: mine,
		},
		{
			why: "or taken the mark away", secret: &kept{},
			at: putData, do: func(k *kept) { k.write(nil, map[string]any{}) },
			changed: true, data: pushed, marks: mine,
		},
		{
			why: "a secret of ESO v1 keeps its mark, and is taken over at the next attempt", secret: &kept{version: 1, data: theirs, marks: map[string]any{ownership.ManagedTag: ownership.ManagedValue}},
			at: putData, do: func(k *kept) { k.write(map[string]any{"a": "newer"}, nil) },
			changed: true, data: pushed, marks: mine,
		},
		{
			why: "unless another owner has taken it over", secret: &kept{version: 1, data: theirs, marks: map[string]any{ownership.ManagedTag: ownership.ManagedValue}},
			at: putData, do: func(k *kept) { k.write(map[string]any{"a": "newer"}, yours) },
			code: codes.FailedPrecondition, data: map[string]any{"a": "newer"}, marks: yours,
		},
		{
			why: "what was this owner's before stays so", secret: &kept{version: 1, data: theirs, marks: mine},
			at: putData, do: func(k *kept) { k.write(map[string]any{"a": "newer"}, nil) },
			changed: true, data: pushed, marks: mine,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)

			var once sync.Once

			c.secret.between = func(request string) {
				if request == c.at {
					once.Do(func() { c.do(c.secret) })
				}
			}
			c.secret.serve(v, appPath, metadataPath)

			c.push.Key, c.push.Value, c.push.Owner = "app", []byte(`{"a":"pushed"}`), "me"

			got, err := with(v).open(t).Push(t.Context(), c.push)
			if c.code != codes.OK {
				if got := errorOf(t, err); got.Code != c.code || got.Reason != pb.ReasonNotOwned {
					t.Errorf("%v %s: %s", got.Code, got.Reason, got.Message)
				}
			} else if err != nil || got.Changed != c.changed {
				t.Errorf("changed is %t, %v", got.Changed, err)
			}

			if diff := cmp.Diff([]any{c.data, c.marks}, []any{c.secret.data, c.secret.marks}); diff != "" {
				t.Errorf("data and marks (-want +got):\n%s", diff)
			}
		})
	}
}

// If the answer to the first write is lost, the next push recognizes its own
// secret.
func TestClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()

	v, secret := newVault(t), &kept{}
	secret.serve(v, appPath, metadataPath)

	v.mu.Lock()
	write := v.answers[appPath]
	v.mu.Unlock()

	var once sync.Once

	v.handle(appPath, func(w http.ResponseWriter, r *http.Request) {
		lost := false
		if r.Method == http.MethodPut {
			once.Do(func() { lost = true })
		}

		if !lost {
			write(w, r)

			return
		}

		write(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusBadGateway)
	})

	s := with(v, func(s *setup) { s.retries = 2 }).open(t)
	push := provider.Push{Key: "app", Value: []byte(`{"a":"1"}`), Owner: "me"}

	if _, err := s.Push(t.Context(), push); errorOf(t, err).Code != codes.Unavailable || secret.owner() != "me" {
		t.Errorf("%v; marked as %v's", err, secret.owner())
	}

	if pushed, err := s.Push(t.Context(), push); err != nil || pushed.Changed || secret.version != 1 {
		t.Errorf("the next push: %+v, %v, at version %d", pushed, err, secret.version)
	}
}

// Of two owners that push the same new key at once, one has it; the other never
// gets it, then or later.
func TestTwoOwnersOfANewKey(t *testing.T) {
	t.Parallel()

	for range 50 {
		v, secret := newVault(t), &kept{}
		secret.serve(v, appPath, metadataPath)

		s := with(v).open(t)
		owners := []string{"me", "you"}
		push := func(owner string) (provider.Pushed, error) {
			return s.Push(t.Context(), provider.Push{Key: "app", Value: []byte(`{"a":"` + owner + `"}`), Owner: owner})
		}

		var (
			wait sync.WaitGroup
			errs [2]error
		)

		for i, owner := range owners {
			wait.Go(func() { _, errs[i] = push(owner) })
		}

		wait.Wait()

		winner, loser := 0, 1
		if errs[0] != nil {
			winner, loser = 1, 0
		}

		if errs[winner] != nil || errs[loser] == nil || secret.data["a"] != owners[winner] || secret.owner() == owners[loser] {
			t.Fatalf("%v: holds %v, marked as %v's", errs, secret.data, secret.owner())
		}

		if _, err := push(owners[loser]); err == nil || provider.AsError(err).Reason != pb.ReasonNotOwned || secret.data["a"] != owners[winner] {
			t.Fatalf("the loser's next push: %v: holds %v", err, secret.data)
		}
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
		{why: "a secret without an owner stays", metadata: owned(`null`), deletion: provider.Deletion{Key: "app", Owner: "me"}, code: codes.FailedPrecondition},
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
