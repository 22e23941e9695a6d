package store

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

// keeper is an API that keeps secrets with marks of their owners.
type keeper struct {
	mu      sync.Mutex
	secrets map[string]string
	owners  map[string]string
	// judges means that it refuses other owners' writes itself, and tags that it
	// returns revisions.
	judges, tags bool
	// blind means that it does not support reads.
	blind bool
}

func newKeeper() *keeper { return &keeper{secrets: map[string]string{}, owners: map[string]string{}} }

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()

	key, owner := r.URL.Path, r.Header.Get("X-Owner")
	value, there := k.secrets[key]

	if k.judges && there && r.Method != http.MethodGet && owner != k.owners[key] && (k.owners[key] != "" || r.Header.Get("X-Adopt") != "true") {
		w.WriteHeader(http.StatusConflict)

		return
	}

	tag := fmt.Sprintf(`"%d"`, len(value))
	if match := r.Header.Get("If-Match"); match != "" && match != tag {
		w.WriteHeader(http.StatusPreconditionFailed)

		return
	}

	switch {
	case r.Method == http.MethodGet && k.blind:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodPut:
		body, _ := io.ReadAll(r.Body)
		k.secrets[key], k.owners[key] = string(body), owner
	case !there:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(k.secrets, key)
	default:
		if k.tags {
			w.Header().Set("ETag", tag)
		}

		w.Header().Set("X-Owner", k.owners[key])
		_, _ = io.WriteString(w, value)
	}
}

func (k *keeper) holds(key string) string {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.secrets["/"+key]
}

// writable is a config that pushes and deletes.
func writable(url string) v2alpha1.WebhookSpec {
	marks := map[string]v2alpha1.HeaderTemplate{"X-Owner": "{{ .owner }}"}

	return v2alpha1.WebhookSpec{
		URL: url + "/{{ .remoteRef.remoteKey }}",
		Push: &v2alpha1.WebhookRequest{Headers: map[string]v2alpha1.HeaderTemplate{
			"X-Owner": "{{ .owner }}", "X-Adopt": "{{ .adopt }}", "If-Match": "{{ .revision }}",
		}},
		Delete: &v2alpha1.WebhookRequest{Headers: marks},
	}
}

const notOwned = "FailedPrecondition NOT_OWNED"

func TestPush(t *testing.T) {
	for _, mode := range []struct {
		why   string
		setup func(*keeper, *v2alpha1.WebhookSpec)
	}{
		{"the API judges whose a secret is", func(k *keeper, _ *v2alpha1.WebhookSpec) { k.judges = true }},
		{"the API returns the owner", func(_ *keeper, s *v2alpha1.WebhookSpec) { s.OwnerHeader = "x-owner" }},
		{"the API returns revisions too", func(k *keeper, s *v2alpha1.WebhookSpec) { k.tags, s.OwnerHeader = true, "X-Owner" }},
	} {
		t.Run(mode.why, func(t *testing.T) {
			k := newKeeper()
			server := serve(t, k.ServeHTTP)
			spec := writable(server.URL)
			mode.setup(k, &spec)
			s := open(t, spec)
			k.secrets["/by-hand"], k.secrets["/doc"], k.owners["/doc"] = "old", `{"a":"1","b":2}`, "me"

			for _, c := range []struct {
				why     string
				push    provider.Push
				changed bool
				code    string
				want    string
				writes  int
			}{
				{"a new secret", provider.Push{Key: "new", Value: []byte("one\x00\xff")}, true, "OK", "one\x00\xff", 1},
				{"the same again", provider.Push{Key: "new", Value: []byte("one\x00\xff")}, false, "OK", "one\x00\xff", 0},
				{"another value", provider.Push{Key: "new", Value: []byte("two")}, true, "OK", "two", 1},
				{"one that is to stay", provider.Push{Key: "new", Value: []byte("three"), IfNotExists: true}, false, "OK", "two", 0},
				{"one that another owns and is to stay", provider.Push{Key: "new", Value: []byte("three"), IfNotExists: true, Owner: "other"}, false, "OK", "two", 0},
				{"another owner's", provider.Push{Key: "new", Value: []byte("three"), Owner: "other"}, false, notOwned, "two", -1},
				{"another owner's, adopting", provider.Push{Key: "new", Value: []byte("three"), Owner: "other", Adopt: true}, false, notOwned, "two", -1},
				{"without a mark", provider.Push{Key: "by-hand", Value: []byte("mine")}, false, notOwned, "old", -1},
				{"without a mark, adopting", provider.Push{Key: "by-hand", Value: []byte("mine"), Adopt: true}, true, "OK", "mine", 1},
				{"the same JSON written in another way", provider.Push{Key: "doc", Value: []byte(`{"b": 2, "a": "1"}`)}, false, "OK", `{"a":"1","b":2}`, 0},
				{"a property of it", provider.Push{Key: "doc", Property: "c", Value: []byte("3")}, true, "OK", `{"a":"1","b":2,"c":"3"}`, 1},
				{"the property again", provider.Push{Key: "doc", Property: "c", Value: []byte("3")}, false, "OK", `{"a":"1","b":2,"c":"3"}`, 0},
				{"a property that is to stay", provider.Push{Key: "doc", Property: "a", Value: []byte("9"), IfNotExists: true}, false, "OK", `{"a":"1","b":2,"c":"3"}`, 0},
				{"a property of a new secret", provider.Push{Key: "made", Property: "x", Value: []byte("1")}, true, "OK", `{"x":"1"}`, 1},
				{"a property of what is no object", provider.Push{Key: "new", Property: "x", Value: []byte("1")}, false, "InvalidArgument INVALID_REQUEST", "two", 0},
				{"unknown settings", provider.Push{Key: "new", Value: []byte("x"), Settings: []byte(`{"a":1}`)}, false, "InvalidArgument INVALID_REQUEST", "two", 0},
			} {
				if c.push.Owner == "" {
					c.push.Owner = "me"
				}

				before := len(server.requests())
				pushed, err := s.Push(t.Context(), c.push)

				if code(err) != c.code || pushed.Changed != c.changed || k.holds(c.push.Key) != c.want {
					t.Errorf("%s: changed %t, %v, holds %q; want %+v", c.why, pushed.Changed, err, k.holds(c.push.Key), c)
				}

				writes := 0

				for _, request := range server.requests()[before:] {
					if strings.HasPrefix(request, http.MethodPut) {
						writes++
					}
				}

				if c.writes >= 0 && writes != c.writes {
					t.Errorf("%s: %d writes; want %d", c.why, writes, c.writes)
				}
			}
		})
	}
}

// A secret without a mark is taken over by adopting it even where its value is
// the same already: else it would never be its owner's.
func TestAdoptsTheSameValue(t *testing.T) {
	k := newKeeper()
	server := serve(t, k.ServeHTTP)
	spec := writable(server.URL)
	spec.OwnerHeader = "X-Owner"
	k.secrets["/by-hand"] = "same"

	pushed, err := open(t, spec).Push(t.Context(), provider.Push{Key: "by-hand", Value: []byte("same"), Owner: "me", Adopt: true})
	if err != nil || !pushed.Changed || k.owners["/by-hand"] != "me" {
		t.Errorf("%+v, %v, owner %q", pushed, err, k.owners["/by-hand"])
	}
}

// Pushes of properties of one secret at the same time lose none of them.
func TestPushesAtTheSameTime(t *testing.T) {
	k := newKeeper()
	server := serve(t, k.ServeHTTP)
	s := open(t, writable(server.URL))

	var wait sync.WaitGroup

	for i := range 20 {
		wait.Go(func() {
			if _, err := s.Push(t.Context(), provider.Push{Key: "doc", Property: fmt.Sprintf("p%d", i), Value: []byte("x"), Owner: "me"}); err != nil {
				t.Error(err)
			}
		})
	}

	wait.Wait()

	if n := strings.Count(k.holds("doc"), `"p`); n != 20 {
		t.Errorf("%d of 20 properties are there", n)
	}
}

func TestDelete(t *testing.T) {
	for _, mode := range []struct {
		why   string
		setup func(*keeper, *v2alpha1.WebhookSpec)
	}{
		{"the API judges whose a secret is", func(k *keeper, _ *v2alpha1.WebhookSpec) { k.judges = true }},
		{"the API returns the owner", func(_ *keeper, s *v2alpha1.WebhookSpec) { s.OwnerHeader = "X-Owner" }},
	} {
		t.Run(mode.why, func(t *testing.T) {
			k := newKeeper()
			server := serve(t, k.ServeHTTP)
			spec := writable(server.URL)
			mode.setup(k, &spec)
			s := open(t, spec)

			for key, value := range map[string]string{"a": "1", "by-hand": "2", "doc": `{"a":"1","b":"2"}`} {
				k.secrets["/"+key] = value
				if key != "by-hand" {
					k.owners["/"+key] = "me"
				}
			}

			for _, c := range []struct {
				why      string
				deletion provider.Deletion
				changed  bool
				code     string
				want     string
			}{
				{"another owner's", provider.Deletion{Key: "a", Owner: "other"}, false, notOwned, "1"},
				{"without a mark", provider.Deletion{Key: "by-hand"}, false, notOwned, "2"},
				{"its own", provider.Deletion{Key: "a"}, true, "OK", ""},
				{"once more", provider.Deletion{Key: "a"}, false, "OK", ""},
				{"a property of another owner's", provider.Deletion{Key: "doc", Property: "a", Owner: "other"}, false, notOwned, `{"a":"1","b":"2"}`},
				{"a property", provider.Deletion{Key: "doc", Property: "a"}, true, "OK", `{"b":"2"}`},
				{"the property once more", provider.Deletion{Key: "doc", Property: "a"}, false, "OK", `{"b":"2"}`},
				{"a property of nothing", provider.Deletion{Key: "nothing", Property: "a"}, false, "OK", ""},
				{"the last property, with which the secret goes", provider.Deletion{Key: "doc", Property: "b"}, true, "OK", ""},
			} {
				if c.deletion.Owner == "" {
					c.deletion.Owner = "me"
				}

				changed, err := s.Delete(t.Context(), c.deletion)
				if code(err) != c.code || changed != c.changed || k.holds(c.deletion.Key) != c.want {
					t.Errorf("%s: changed %t, %v, holds %q; want %+v", c.why, changed, err, k.holds(c.deletion.Key), c)
				}
			}

			if _, there := k.secrets["/doc"]; there {
				t.Error("a secret without properties is left")
			}
		})
	}
}

func TestExists(t *testing.T) {
	k := newKeeper()
	k.secrets["/a"] = `{"x":"1"}`
	server := serve(t, k.ServeHTTP)

	for _, exists := range []*v2alpha1.WebhookRequest{nil, {}, {Method: http.MethodGet}} {
		spec := writable(server.URL)
		spec.Exists = exists
		s := open(t, spec)

		for _, c := range []struct {
			key, property string
			want          bool
		}{{"a", "", true}, {"b", "", false}, {"a", "x", true}, {"a", "y", false}, {"b", "x", false}} {
			got, err := s.Exists(t.Context(), c.key, c.property)
			if err != nil || got != c.want {
				t.Errorf("%+v with exists %+v: %t, %v", c, exists, got, err)
			}
		}
	}

	refusing := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	if there, err := open(t, v2alpha1.WebhookSpec{URL: refusing.URL + "/{{ .remoteRef.key }}", Exists: &v2alpha1.WebhookRequest{}}).Exists(t.Context(), "a", ""); there || code(err) != "PermissionDenied ACCESS_DENIED" {
		t.Errorf("a secret that may not be asked for: %t, %v", there, err)
	}
}

// An API that only takes secrets is written to without being read.
func TestAPIThatDoesNotRead(t *testing.T) {
	k := newKeeper()
	k.blind = true
	server := serve(t, k.ServeHTTP)
	s := open(t, writable(server.URL))

	if pushed, err := s.Push(t.Context(), provider.Push{Key: "a", Value: []byte("x"), Owner: "me"}); err != nil || !pushed.Changed || k.holds("a") != "x" {
		t.Errorf("%+v, %v", pushed, err)
	}

	for _, push := range []provider.Push{{Key: "a", Property: "p", Value: []byte("x"), Owner: "me"}, {Key: "a", Value: []byte("y"), Owner: "me", IfNotExists: true}} {
		if _, err := s.Push(t.Context(), push); code(err) != "Unimplemented UNSUPPORTED" {
			t.Errorf("%+v: %v", push, err)
		}
	}
}

// With ownerHeader, the owner is unknown if the API does not support reads: nothing
// is overwritten.
func TestOwnerOfWhatIsNotRead(t *testing.T) {
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		k := newKeeper()
		k.secrets["/a"], k.owners["/a"] = "theirs", "other"
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.WriteHeader(status)

				return
			}

			k.ServeHTTP(w, r)
		})
		spec := writable(server.URL)
		spec.OwnerHeader = "X-Owner"
		s := open(t, spec)

		for _, adopt := range []bool{false, true} {
			_, err := s.Push(t.Context(), provider.Push{Key: "a", Value: []byte("mine"), Owner: "me", Adopt: adopt})
			if code(err) != "Unimplemented UNSUPPORTED" || !strings.Contains(err.Error(), "spec.ownerHeader") || k.holds("a") != "theirs" {
				t.Errorf("%d, adopting %t: %v, holds %q", status, adopt, err, k.holds("a"))
			}
		}
	}
}

// A read that fails proves nothing: nothing is written in the dark.
func TestPushNeedsTheRead(t *testing.T) {
	status := 0
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s after a read that failed", r.Method)
		}

		w.WriteHeader(status)
	})
	s := open(t, writable(server.URL))

	for _, status = range []int{401, 403, 429, 500} {
		if _, err := s.Push(t.Context(), provider.Push{Key: "a", Value: []byte("x"), Owner: "me"}); err == nil || !strings.Contains(err.Error(), `cannot push secret "a"`) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// Properties that requests name are the API's own.
func TestPropertiesOfTheAPI(t *testing.T) {
	k := newKeeper()
	server := serve(t, k.ServeHTTP)

	spec := writable(server.URL)
	spec.URL = server.URL + "/{{ .remoteRef.key }}/{{ .remoteRef.property }}"
	s := open(t, spec)

	if pushed, err := s.Push(t.Context(), provider.Push{Key: "a", Property: "p", Value: []byte("x"), Owner: "me"}); err != nil || !pushed.Changed || k.holds("a/p") != "x" {
		t.Errorf("%+v, %v", pushed, err)
	}

	if pushed, err := s.Push(t.Context(), provider.Push{Key: "a", Property: "p", Value: []byte("x"), Owner: "me"}); err != nil || pushed.Changed {
		t.Errorf("once more: %+v, %v", pushed, err)
	}

	if there, err := s.Exists(t.Context(), "a", "p"); !there || err != nil {
		t.Errorf("%t, %v", there, err)
	}

	if changed, err := s.Delete(t.Context(), provider.Deletion{Key: "a", Property: "p", Owner: "me"}); !changed || err != nil || k.holds("a/p") != "" {
		t.Errorf("%t, %v", changed, err)
	}

	spec.Push = &v2alpha1.WebhookRequest{URL: server.URL + "/{{ .remoteRef.key }}"}
	spec.Delete = &v2alpha1.WebhookRequest{URL: server.URL + "/{{ .remoteRef.key }}"}
	s = open(t, spec)

	_, pushErr := s.Push(t.Context(), provider.Push{Key: "a", Property: "p", Value: []byte("x"), Owner: "me"})
	_, deleteErr := s.Delete(t.Context(), provider.Deletion{Key: "a", Property: "p", Owner: "me"})

	if diff := cmp.Diff([]string{"Unimplemented UNSUPPORTED", "Unimplemented UNSUPPORTED"}, []string{code(pushErr), code(deleteErr)}); diff != "" {
		t.Errorf("a property of a secret that cannot be read as a whole: %v, %v", pushErr, deleteErr)
	}
}

// The error of an unsupported call contains the missing field.
func TestUnsupported(t *testing.T) {
	s := open(t, v2alpha1.WebhookSpec{URL: "https://api.example.com/{{ .remoteRef.key }}"})

	if _, err := s.Push(t.Context(), provider.Push{Key: "a", Owner: "me"}); code(err) != "Unimplemented UNSUPPORTED" || !strings.Contains(err.Error(), "spec.push") {
		t.Errorf("%v", err)
	}

	if _, err := s.Delete(t.Context(), provider.Deletion{Key: "a", Owner: "me"}); code(err) != "Unimplemented UNSUPPORTED" || !strings.Contains(err.Error(), "spec.delete") {
		t.Errorf("%v", err)
	}
}
