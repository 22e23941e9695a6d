package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The credentials of tests, which no error may hold.
const (
	token    = "t0ken-2e91-canary"
	password = "p4ssword-77aa-canary"
)

// references resolves Secrets by "name/key".
type references map[string]string

func (r references) SecretKey(_ context.Context, ref metav1alpha1.SecretKeySelector) ([]byte, error) {
	value, ok := r[ref.Name+"/"+ref.Key]
	if !ok {
		return nil, provider.InvalidConfig("Secret %q has no key %q", ref.Name, ref.Key)
	}

	return []byte(value), nil
}

func (r references) CABundle(ctx context.Context, source metav1alpha1.CASource) ([]byte, error) {
	return r.SecretKey(ctx, *source.SecretRef)
}

func (r references) ServiceAccountToken(context.Context, metav1alpha1.ServiceAccountSelector, ...string) (string, error) {
	return "", errors.New("not asked for")
}

func (r references) Namespace() string { return "team-a" }

func credentials() references {
	return references{"api/token": token, "api/user": "app", "api/password": password, "api/line": token + "\n"}
}

// secret names a key of the Secret of tests.
func secret(name, key string) v2alpha1.WebhookSecret {
	return v2alpha1.WebhookSecret{Name: name, SecretRef: metav1alpha1.SecretKeySelector{Name: "api", Key: key}}
}

// loopback lets a store reach the servers of tests.
func loopback() *egressPolicy {
	return &egressPolicy{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
}

func environment() provider.Environment {
	none := 0

	return provider.Environment{References: credentials(), Retry: provider.Retry{MaxRetries: &none, Interval: time.Millisecond}}
}

func open(t *testing.T, spec v2alpha1.WebhookSpec) *Store {
	t.Helper()

	return openWith(t, environment(), spec)
}

func openWith(t *testing.T, env provider.Environment, spec v2alpha1.WebhookSpec) *Store {
	t.Helper()

	s, err := loopback().New(t.Context(), env, &v2alpha1.Webhook{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close(context.Background()) })

	return s
}

// api answers requests and keeps them.
type api struct {
	*httptest.Server

	mu   sync.Mutex
	seen []string
}

// record keeps method, path and query of a request.
func (a *api) record(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.seen = append(a.seen, r.Method+" "+r.RequestURI)
}

func (a *api) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()

	return slices.Clone(a.seen)
}

func serve(t *testing.T, handle func(w http.ResponseWriter, r *http.Request)) *api {
	t.Helper()

	a := &api{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.record(r)
		handle(w, r)
	}))
	t.Cleanup(a.Close)

	return a
}

// code of an error, with its reason.
func code(err error) string {
	if err == nil {
		return "OK"
	}

	typed := provider.AsError(err)

	return typed.Code.String() + " " + typed.Reason
}

func one(t *testing.T, s *Store, read provider.Read) provider.Result {
	t.Helper()

	return s.Read(t.Context(), []provider.Read{read})[0]
}

func TestRead(t *testing.T) {
	const document = `{"data":{"user":"app","port":5432,"big":12345678901234567890,"on":true,"none":null,"nested":{"b":1,"a":[1, 2]},"text":"{\"in\":\"side\"}","items":[{"name":"a","value":"first"},{"name":"b","value":"second"},{"name":"b","value":"third"}]}}`

	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/secrets/db":
			fmt.Fprint(w, document)
		case "/secrets/raw":
			_, _ = w.Write([]byte{0, 1, 0xff, '\n'})
		case "/secrets/numbers":
			fmt.Fprint(w, `{"sizes":[{"n":1,"v":"no","on":false},{"n":2,"v":"yes","on":true,"only":"here"}]}`)
		case "/secrets/empty":
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})

	for _, c := range []struct {
		why  string
		path string
		read provider.Read
		want string
		code string
	}{
		{"without a path the answer is the secret", "", provider.Read{Key: "db"}, document, ""},
		{"whatever bytes it has", "", provider.Read{Key: "raw"}, "\x00\x01\xff\n", ""},
		{"even none", "", provider.Read{Key: "empty"}, "", ""},
		{"a property is selected from the answer", "", provider.Read{Key: "db", Property: "data.user"}, "app", ""},
		{"a path gives a text without quotes", "$.data.user", provider.Read{Key: "db"}, "app", ""},
		{"a number, unchanged", "$.data.big", provider.Read{Key: "db"}, "12345678901234567890", ""},
		{"null is nothing", "$.data.none", provider.Read{Key: "db"}, "", ""},
		{"an object, unchanged", "$.data.nested", provider.Read{Key: "db"}, `{"b":1,"a":[1, 2]}`, ""},
		{"the property is selected from what the path gives", "$.data", provider.Read{Key: "db", Property: "nested.a.1"}, "2", ""},
		{"a text that is JSON has properties too", "$.data.text", provider.Read{Key: "db", Property: "in"}, "side", ""},
		{"brackets", `$['data']["user"]`, provider.Read{Key: "db"}, "app", ""},
		{"an index", "$.data.items[1].value", provider.Read{Key: "db"}, "second", ""},
		{"an index from the end", "$.data.items[-1].value", provider.Read{Key: "db"}, "third", ""},
		{"a filter, of which the first match counts", "$.data.items[?(@.name == 'b')].value", provider.Read{Key: "db"}, "second", ""},
		{"a filter in the form of RFC 9535", `$.data.items[?@.name == "b"].value`, provider.Read{Key: "db"}, "second", ""},
		{"a filter by a number", "$.data[?(@.port == 1)]", provider.Read{Key: "db"}, "", "NotFound NOT_FOUND"},
		{"a filter with two conditions", "$.data.items[?(@.name == 'b' && @.value != 'second')].value", provider.Read{Key: "db"}, "third", ""},
		{"a filter by an expression", "$.data.items[?(@.value =~ /^th/)].name", provider.Read{Key: "db"}, "b", ""},
		{"a filter of numbers", "$.sizes[?(@.n >= 2)].v", provider.Read{Key: "numbers"}, "yes", ""},
		{"a filter of truths", "$.sizes[?(@.on == true)].v", provider.Read{Key: "numbers"}, "yes", ""},
		{"a filter in the midst of a path that leads on", "$.sizes[?(@.n > 0)].only", provider.Read{Key: "numbers"}, "here", ""},
		{"a filter that asks whether something is there", "$.sizes[?(@.only)].v", provider.Read{Key: "numbers"}, "yes", ""},
		{"a descent", "$..value", provider.Read{Key: "db"}, "first", ""},
		{"the first of all, in the order of the text", "$.data.*", provider.Read{Key: "db"}, "app", ""},
		{"a path with a value", "$.data[{{ .remoteRef.property | toJson }}]", provider.Read{Key: "db", Property: "user"}, "app", ""},
		{"a path with a value that leads nowhere", "$.data[{{ .remoteRef.property | toJson }}]", provider.Read{Key: "db", Property: "no"}, "", "NotFound PROPERTY_NOT_FOUND"},
		{"a value cannot leave the quotes that toJson makes", "$.data[{{ .remoteRef.property | toJson }}]", provider.Read{Key: "db", Property: `x"].user`}, "", "NotFound PROPERTY_NOT_FOUND"},
		{"a search that finds nothing", "$.data.items[?(@.name == 'z')].value", provider.Read{Key: "db"}, "", "NotFound NOT_FOUND"},
		{"a fixed path that leads nowhere proves nothing about the secret", "$.dada.user", provider.Read{Key: "db"}, "", "InvalidArgument INVALID_REQUEST"},
		{"nor does a misspelt path to where the property would be", "$.dada[{{ .remoteRef.property | toJson }}]", provider.Read{Key: "db", Property: "no"}, "", "InvalidArgument INVALID_REQUEST"},
		{"nor one after it", "$.data[{{ .remoteRef.property | toJson }}].valeu", provider.Read{Key: "db", Property: "nested"}, "", "InvalidArgument INVALID_REQUEST"},
		{"nor a search through what is not there", "$.data.itmes[?(@.name == 'z')].value", provider.Read{Key: "db"}, "", "InvalidArgument INVALID_REQUEST"},
		{"nor a misspelt name in what a search has found", "$.data.items[?(@.name == 'a')].valeu", provider.Read{Key: "db"}, "", "InvalidArgument INVALID_REQUEST"},
		{"nor an index of what is no list", "$.data[0]", provider.Read{Key: "db"}, "", "InvalidArgument INVALID_REQUEST"},
		{"an index beyond a list", "$.data.items[7].value", provider.Read{Key: "db"}, "", "NotFound NOT_FOUND"},
		{"a name that is nowhere", "$.data..nothing", provider.Read{Key: "db"}, "", "NotFound NOT_FOUND"},
		{"a path with the key", "$.data[{{ .remoteRef.key | toJson }}]", provider.Read{Key: "db"}, "", "NotFound NOT_FOUND"},
		{"a path into what is no JSON", "$.data", provider.Read{Key: "raw"}, "", "InvalidArgument INVALID_REQUEST"},
		{"no such secret", "$.data", provider.Read{Key: "nothing"}, "", "NotFound NOT_FOUND"},
		{"no such property", "$.data", provider.Read{Key: "db", Property: "nothing"}, "", "NotFound PROPERTY_NOT_FOUND"},
		{"a version that the request cannot ask for", "", provider.Read{Key: "db", Version: "2"}, "", "InvalidArgument INVALID_REQUEST"},
		{"metadata that does not exist", "", provider.Read{Key: "db", Metadata: true}, "", "Unimplemented UNSUPPORTED"},
		{"a key that would leave its place", "", provider.Read{Key: ".."}, "", "InvalidArgument INVALID_REQUEST"},
		{"a key that would leave it in an escape", "", provider.Read{Key: "../admin"}, "", "InvalidArgument INVALID_REQUEST"},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := open(t, v2alpha1.WebhookSpec{URL: server.URL + "/secrets/{{ .remoteRef.key }}", Result: v2alpha1.WebhookResult{JSONPath: c.path}})

			got := one(t, s, c.read)
			if c.code != "" {
				if code(got.Err) != c.code {
					t.Errorf("%v (%s); want %s", got.Err, code(got.Err), c.code)
				}

				return
			}

			if got.Err != nil || string(got.Value) != c.want || got.Revision == "" {
				t.Errorf("%q, revision %q, %v; want %q", got.Value, got.Revision, got.Err, c.want)
			}
		})
	}

	t.Run("an extract needs an object", func(t *testing.T) {
		s := open(t, v2alpha1.WebhookSpec{URL: server.URL + "/secrets/{{ .remoteRef.key }}", Result: v2alpha1.WebhookResult{JSONPath: "$.data.nested"}})

		got := one(t, s, provider.Read{Key: "db", Shape: provider.Map})
		if diff := cmp.Diff(map[string][]byte{"b": []byte("1"), "a": []byte("[1, 2]")}, got.Map); diff != "" || got.Err != nil {
			t.Errorf("%v (-want +got):\n%s", got.Err, diff)
		}

		s = open(t, v2alpha1.WebhookSpec{URL: server.URL + "/secrets/{{ .remoteRef.key }}"})
		if got := one(t, s, provider.Read{Key: "raw", Shape: provider.Map}); code(got.Err) != "InvalidArgument INVALID_REQUEST" {
			t.Errorf("an extract of bytes: %v", got.Err)
		}
	})
}

// What a batch costs is the number of different requests.
func TestBatch(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"a":{"x":"1","y":"2"},"b":{"x":"3"}}`) })

	for _, c := range []struct {
		why, url, path string
		want           []string
		values         string
	}{
		{"properties of one key are selected from one answer", "/{{ .remoteRef.key }}", "$.a", []string{"GET /a", "GET /b"}, "1 2 1 1"},
		{"a URL that names the property is one request for each", "/{{ .remoteRef.key }}?p={{ .remoteRef.property }}", "$.a.x", []string{"GET /a?p=x", "GET /a?p=y", "GET /b?p=x"}, "1 1 1 1"},
		{"a URL that names nothing is one request for all keys", "/all", `$[{{ .remoteRef.key | quote }}]`, []string{"GET /all"}, "1 2 3 1"},
	} {
		t.Run(c.why, func(t *testing.T) {
			before := len(server.requests())
			s := open(t, v2alpha1.WebhookSpec{URL: server.URL + c.url, Result: v2alpha1.WebhookResult{JSONPath: c.path}})

			var values []string

			for _, result := range s.Read(t.Context(), []provider.Read{{Key: "a", Property: "x"}, {Key: "a", Property: "y"}, {Key: "b", Property: "x"}, {Key: "a", Property: "x"}}) {
				if result.Err != nil {
					t.Error(result.Err)
				}

				values = append(values, string(result.Value))
			}

			if got := strings.Join(values, " "); got != c.values {
				t.Errorf("values %q; want %q", got, c.values)
			}

			seen := server.requests()[before:]
			slices.Sort(seen)

			if diff := cmp.Diff(c.want, seen); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	var got *http.Request

	var body []byte

	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})

	s := open(t, v2alpha1.WebhookSpec{
		URL:    server.URL + "/v1/{{ .remoteRef.key | path }}/{{ .remoteRef.key }}?k={{ .remoteRef.key }}&v={{ .remoteRef.version }}&t={{ .secrets.token }}\n",
		Method: http.MethodPost,
		Headers: map[string]v2alpha1.HeaderTemplate{
			"authorization": `Basic {{ print .auth.user ":" .auth.password | b64enc }}`,
			"X-Token":       `{{ .token.token }}{{ if eq .remoteRef.property "p" }}+{{ end }}`,
			"X-Line":        `{{ index .line "line" | trim }}`,
			"X-Printf":      `{{ printf "%s:%s" .auth.user (.remoteRef.key | upper) }}`,
			"X-Nothing":     `{{ .remoteRef.property | trimPrefix "p" }}`,
		},
		Body:    `{"key":{{ .remoteRef.key | toJson }}}`,
		Secrets: []v2alpha1.WebhookSecret{secret("auth", "user"), secret("auth", "password"), secret("token", "token"), secret("line", "line")},
	})

	if result := one(t, s, provider.Read{Key: `a/b?c&"d`, Version: "3", Property: "p"}); result.Err != nil && code(result.Err) != "InvalidArgument INVALID_REQUEST" {
		t.Fatal(result.Err)
	}

	if want := "/v1/a/b%3Fc%26%22d/a%2Fb%3Fc%26%22d?k=a%2Fb%3Fc%26%22d&v=3&t=" + token; got.RequestURI != want {
		t.Errorf("URI %s; want %s", got.RequestURI, want)
	}

	if want := `{"key":"a/b?c&\"d"}`; string(body) != want || got.Method != http.MethodPost {
		t.Errorf("%s with body %s; want POST with %s", got.Method, body, want)
	}

	user, pass, ok := got.BasicAuth()
	if !ok || user != "app" || pass != password {
		t.Errorf("basic authentication as %q", user)
	}

	want := map[string]string{"X-Token": token + "+", "X-Line": token, "X-Printf": `app:A/B?C&"D`, "X-Nothing": ""}
	for name, value := range want {
		if got.Header.Get(name) != value {
			t.Errorf("header %s differs", name)
		}
	}

	if _, sent := got.Header["X-Nothing"]; sent {
		t.Error("an empty header is sent")
	}
}

func TestRevision(t *testing.T) {
	etag := `"v1"`
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tagged" {
			w.Header().Set("ETag", etag)
		}

		if r.Header.Get("If-None-Match") == etag || r.URL.Path == "/wrong" {
			w.WriteHeader(http.StatusNotModified)

			return
		}

		fmt.Fprint(w, `{"a":"1","b":"2"}`)
	})

	spec := v2alpha1.WebhookSpec{URL: server.URL + "/{{ .remoteRef.key }}"}
	s := open(t, spec)

	for _, key := range []string{"tagged", "plain"} {
		first := one(t, s, provider.Read{Key: key, Property: "a"})
		again := one(t, s, provider.Read{Key: key, Property: "a", KnownRevision: first.Revision})

		if first.Err != nil || first.Revision == "" || !again.NotModified || again.Revision != first.Revision {
			t.Errorf("%s: %+v, then %+v", key, first, again)
		}

		both := s.Read(t.Context(), []provider.Read{{Key: key, Property: "a", KnownRevision: first.Revision}, {Key: key, Property: "b"}})
		if !both[0].NotModified || string(both[1].Value) != "2" {
			t.Errorf("%s: one that knows the revision and one that does not: %+v", key, both)
		}

		spec.Result.JSONPath = "$.b"
		if other := one(t, open(t, spec), provider.Read{Key: key, KnownRevision: first.Revision}); other.NotModified || string(other.Value) != "2" {
			t.Errorf("%s: the revision of another config: %+v", key, other)
		}

		spec.Result.JSONPath = ""
	}

	if got := one(t, s, provider.Read{Key: "wrong"}); code(got.Err) != "Unavailable BACKEND_UNAVAILABLE" {
		t.Errorf("304 to a request without condition: %+v", got)
	}
}

func TestStatuses(t *testing.T) {
	status, after := 0, ""
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}

		w.Header().Set("Location", "/elsewhere?"+token)
		w.WriteHeader(status)
		fmt.Fprint(w, token)
	})

	spec := v2alpha1.WebhookSpec{
		URL: server.URL + "/{{ .remoteRef.key }}?t={{ .token.token }}", Secrets: []v2alpha1.WebhookSecret{secret("token", "token")},
		Push: &v2alpha1.WebhookRequest{}, Delete: &v2alpha1.WebhookRequest{},
	}
	s := open(t, spec)

	for _, c := range []struct {
		status int
		after  string
		read   string
		store  bool
		retry  time.Duration
	}{
		{206, "", "Unavailable BACKEND_UNAVAILABLE", true, 0},
		{301, "", "Unavailable BACKEND_UNAVAILABLE", false, 0},
		{302, "", "Unavailable BACKEND_UNAVAILABLE", false, 0},
		{307, "", "Unavailable BACKEND_UNAVAILABLE", false, 0},
		{400, "", "InvalidArgument INVALID_REQUEST", false, 0},
		{401, "", "Unauthenticated UNAUTHENTICATED", true, 0},
		{403, "", "PermissionDenied ACCESS_DENIED", false, 0},
		{404, "", "NotFound NOT_FOUND", false, 0},
		{405, "", "Unimplemented UNSUPPORTED", false, 0},
		{409, "", "InvalidArgument INVALID_REQUEST", false, 0},
		{410, "", "InvalidArgument INVALID_REQUEST", false, 0},
		{422, "", "InvalidArgument INVALID_REQUEST", false, 0},
		{429, "", "ResourceExhausted THROTTLED", true, 0},
		{429, "7", "ResourceExhausted THROTTLED", true, 7 * time.Second},
		{429, "999999", "ResourceExhausted THROTTLED", true, time.Hour},
		{500, "", "Unavailable BACKEND_UNAVAILABLE", false, 0},
		{502, "", "Unavailable BACKEND_UNAVAILABLE", true, 0},
		{503, "", "Unavailable BACKEND_UNAVAILABLE", true, 0},
		{503, "30", "ResourceExhausted THROTTLED", true, 30 * time.Second},
		{504, "", "Unavailable BACKEND_UNAVAILABLE", true, 0},
	} {
		status, after = c.status, c.after
		err := one(t, s, provider.Read{Key: "some-key"}).Err
		typed := provider.AsError(err)

		if code(err) != c.read || typed.StoreScope != c.store || typed.RetryAfter != c.retry {
			t.Errorf("%d: %s, of the store: %t, again after %s; want %+v", c.status, code(err), typed.StoreScope, typed.RetryAfter, c)
		}

		if text := err.Error(); strings.Contains(text, token) || !strings.Contains(text, strconv.Itoa(c.status)) || !strings.Contains(text, server.URL) || !strings.Contains(text, `"some-key"`) {
			t.Errorf("%d: %v", c.status, err)
		}
	}

	for _, conflict := range []int{409, 412} {
		status, after = conflict, ""

		if _, err := s.Delete(t.Context(), provider.Deletion{Key: "a", Owner: "me"}); code(err) != "FailedPrecondition "+pb.ReasonNotOwned {
			t.Errorf("%d to a delete: %v", conflict, err)
		}
	}

	spec.NotFound = []v2alpha1.NotFoundStatus{204, 410}
	s = open(t, spec)

	for given, want := range map[int]string{204: "NotFound NOT_FOUND", 410: "NotFound NOT_FOUND", 404: "InvalidArgument INVALID_REQUEST"} {
		status = given
		if err := one(t, s, provider.Read{Key: "a"}).Err; code(err) != want {
			t.Errorf("%d where 204 and 410 mean absent: %v", given, err)
		}
	}
}

func TestRetries(t *testing.T) {
	failures := 0

	var answer int

	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/written" {
			w.WriteHeader(http.StatusNotFound)

			return
		}

		if failures--; failures >= 0 {
			if answer == 0 {
				panic(http.ErrAbortHandler)
			}

			w.WriteHeader(answer)
		}
	})

	two := 2
	env := environment()
	env.Retry.MaxRetries = &two

	read := func(s *Store) error { return one(t, s, provider.Read{Key: "a"}).Err }
	push := func(s *Store) error {
		_, err := s.Push(t.Context(), provider.Push{Key: "written", Value: []byte("x"), Owner: "me"})

		return err
	}

	for _, c := range []struct {
		why                 string
		do                  func(*Store) error
		method              string
		answer, fails, want int
		code                string
	}{
		{"a read is repeated", read, "", 500, 2, 3, "OK"},
		{"a connection that broke", read, "", 0, 2, 3, "OK"},
		{"a bounded number of times", read, "", 503, 9, 3, "Unavailable BACKEND_UNAVAILABLE"},
		{"not what will be the same", read, "", 403, 9, 1, "PermissionDenied ACCESS_DENIED"},
		{"not where the API asks for less", read, "", 429, 9, 1, "ResourceExhausted THROTTLED"},
		{"a write that does the same again", push, http.MethodPut, 502, 2, 4, "OK"},
		{"not a write that may do it twice", push, http.MethodPost, 502, 2, 2, "Unavailable BACKEND_UNAVAILABLE"},
	} {
		failures, answer = c.fails, c.answer
		before := len(server.requests())
		s := openWith(t, env, v2alpha1.WebhookSpec{URL: server.URL + "/{{ .remoteRef.key }}", Push: &v2alpha1.WebhookRequest{Method: c.method}})

		if err := c.do(s); code(err) != c.code {
			t.Errorf("%s: %v; want %s", c.why, err, c.code)
		}

		if n := len(server.requests()) - before; n != c.want {
			t.Errorf("%s: %d requests; want %d", c.why, n, c.want)
		}
	}
}

// A cancelled call returns the context's error at once.
func TestGivesUpWithTheCaller(t *testing.T) {
	begun, over := make(chan struct{}, 1), make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-over
	})

	defer close(over)

	ctx, cancel := context.WithCancel(t.Context())

	go func() {
		<-begun
		cancel()
	}()

	s := open(t, v2alpha1.WebhookSpec{URL: server.URL + "/{{ .remoteRef.key }}"})
	if got := s.Read(ctx, []provider.Read{{Key: "a"}})[0]; provider.AsError(got.Err).Code != codes.Canceled {
		t.Errorf("%v", got.Err)
	}

	s.client.timeout = 20 * time.Millisecond
	if got := one(t, s, provider.Read{Key: "a"}); code(got.Err) != "Unavailable BACKEND_UNAVAILABLE" || !strings.Contains(got.Err.Error(), "within 20ms") {
		t.Errorf("a server that takes too long: %v", got.Err)
	}
}

func TestLargeAnswer(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, maxAnswer+1))
	})

	got := one(t, open(t, v2alpha1.WebhookSpec{URL: server.URL + "/{{ .remoteRef.key }}"}), provider.Read{Key: "a"})
	if typed := provider.AsError(got.Err); typed.Reason != pb.ReasonTooLarge || !strings.Contains(typed.Message, `"a"`) {
		t.Errorf("%v", got.Err)
	}
}

// A redirect is an answer, and its target gets nothing: not even on the same
// host.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) {})

	var target string

	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target, http.StatusTemporaryRedirect)
	})
	s := open(t, v2alpha1.WebhookSpec{URL: server.URL + "/{{ .remoteRef.key }}"})

	for _, target = range []string{other.URL + "/x", "/x", "file:///etc/passwd"} {
		if got := one(t, s, provider.Read{Key: "a"}); code(got.Err) != "Unavailable BACKEND_UNAVAILABLE" || !strings.Contains(got.Err.Error(), "redirect") {
			t.Errorf("%s: %v", target, got.Err)
		}
	}

	if len(other.requests()) > 0 || len(server.requests()) != 3 {
		t.Errorf("requests: %v, %v", other.requests(), server.requests())
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "value") }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	spec := v2alpha1.WebhookSpec{URL: server.URL + "/{{ .remoteRef.key }}"}

	if got := one(t, open(t, spec), provider.Read{Key: "a"}); code(got.Err) != "Unavailable BACKEND_UNAVAILABLE" || !strings.Contains(got.Err.Error(), "spec.caBundle") {
		t.Errorf("an authority that is not known: %v", got.Err)
	}

	spec.CABundle = bundle
	if got := one(t, open(t, spec), provider.Read{Key: "a"}); got.Err != nil || string(got.Value) != "value" {
		t.Errorf("%+v", got)
	}

	spec.URL = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/{{ .remoteRef.key }}"
	if got := one(t, open(t, spec), provider.Read{Key: "a"}); code(got.Err) != "Unavailable BACKEND_UNAVAILABLE" || !strings.Contains(got.Err.Error(), "not for this host") {
		t.Errorf("a certificate of another host: %v", got.Err)
	}
}

// clientPair makes a certificate for a client, which is its own authority.
func clientPair(t *testing.T) (certificate, key []byte, authority *x509.CertPool) {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}

	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	authority = x509.NewCertPool()
	authority.AppendCertsFromPEM(certificate)

	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), authority
}

func TestClientCertificate(t *testing.T) {
	certificate, key, authority := clientPair(t)

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "value") }))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	env := environment()
	env.References = references{"pair/tls.crt": string(certificate), "pair/tls.key": string(key)}
	spec := v2alpha1.WebhookSpec{
		URL: server.URL + "/{{ .remoteRef.key }}", CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}

	if got := one(t, openWith(t, env, spec), provider.Read{Key: "a"}); code(got.Err) != "Unavailable BACKEND_UNAVAILABLE" || !strings.Contains(got.Err.Error(), "TLS handshake") {
		t.Errorf("without a certificate: %v", got.Err)
	}

	spec.ClientTLS = &v2alpha1.WebhookClientTLS{
		CertSecretRef: metav1alpha1.SecretKeySelector{Name: "pair", Key: "tls.crt"}, KeySecretRef: metav1alpha1.SecretKeySelector{Name: "pair", Key: "tls.key"},
	}

	if got := one(t, openWith(t, env, spec), provider.Read{Key: "a"}); got.Err != nil || string(got.Value) != "value" {
		t.Errorf("%+v", got)
	}
}

// The error of an invalid config is reported before its first use, with field and
// line, and without a value.
func TestConfig(t *testing.T) {
	good := func() v2alpha1.WebhookSpec {
		return v2alpha1.WebhookSpec{
			URL:     "https://api.example.com/{{ .remoteRef.key }}",
			Headers: map[string]v2alpha1.HeaderTemplate{},
			Secrets: []v2alpha1.WebhookSecret{secret("auth", "user"), secret("auth", "password"), secret("token", "token"), secret("line", "line")},
		}
	}

	for _, c := range []struct {
		why  string
		set  func(*v2alpha1.WebhookSpec)
		want string
	}{
		{"a key in the host", func(s *v2alpha1.WebhookSpec) { s.URL = "https://{{ .remoteRef.key }}.example.com/" }, "spec.url: scheme, host"},
		{"a key that would go on with the host", func(s *v2alpha1.WebhookSpec) { s.URL = "https://example.com{{ .remoteRef.key }}" }, "spec.url: scheme, host"},
		{"a key in the port", func(s *v2alpha1.WebhookSpec) { s.URL = "https://example.com:{{ .remoteRef.key }}/" }, "spec.url: scheme, host"},
		{"a key in the scheme", func(s *v2alpha1.WebhookSpec) { s.URL = "http{{ .remoteRef.key }}://example.com/" }, "spec.url: scheme, host"},
		{"a key that may come first", func(s *v2alpha1.WebhookSpec) { s.URL = `{{ if .remoteRef.key }}https://a/{{ end }}` }, "spec.url: scheme, host"},
		{"a password in the URL", func(s *v2alpha1.WebhookSpec) { s.URL = "https://me:" + password + "@example.com/" }, "spec.url: no user and password"},
		{"a key before the at sign", func(s *v2alpha1.WebhookSpec) { s.URL = "https://a@{{ .remoteRef.key }}/" }, "spec.url: scheme, host"},
		{"no host", func(s *v2alpha1.WebhookSpec) { s.URL = "https:///x" }, "spec.url: it does not begin with"},
		{"another scheme", func(s *v2alpha1.WebhookSpec) { s.URL = "file:///etc/passwd" }, "spec.url: it does not begin with"},
		{"a backslash, which some take for a slash", func(s *v2alpha1.WebhookSpec) { s.URL = `https://example.com\{{ .remoteRef.key }}/` }, "spec.url: scheme, host"},
		{"a URL of two lines", func(s *v2alpha1.WebhookSpec) { s.URL = "https://example.com/a\n  /b" }, "spec.url: the URL holds a space or a line break"},
		{"a URL that leaves its path", func(s *v2alpha1.WebhookSpec) { s.URL = "https://example.com/a/../b" }, "spec.url: a part of the path"},
		{"a template that does not end", func(s *v2alpha1.WebhookSpec) { s.URL = "https://example.com/{{ .remoteRef.key" }, "spec.url:1: unclosed action"},
		{"a function that is not there, with its line", func(s *v2alpha1.WebhookSpec) { s.Body = "a\nb {{ env \"HOME\" }}" }, `spec.body:2: function "env" not defined`},
		{"a function of the language that is not on the list", func(s *v2alpha1.WebhookSpec) { s.Body = "\n{{ .remoteRef.key | js }}" }, `spec.body:2: function "js" is not one of`},
		{"the function that no template may name", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ _escape .remoteRef.key }}" }, `spec.body:1: function "_escape" is not one of`},
		{"a loop", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ range 1000000000 }}{{ end }}" }, "spec.body:1: a template has values, functions and if"},
		{"a variable, which could grow", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ $x := .remoteRef.key }}" }, "spec.body:1: variables"},
		{"with, which makes the dot another", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ with .remoteRef }}{{ .key }}{{ end }}" }, "spec.body:1: a template has"},
		{"a template in a template", func(s *v2alpha1.WebhookSpec) { s.Body = `{{ define "x" }}{{ template "x" }}{{ end }}` }, "spec.body:1: define"},
		{"too many calls", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ .remoteRef.key" + strings.Repeat(" | quote", 300) + " }}" }, "spec.body:1: more than 64"},
		{"everything at once", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ . }}" }, "spec.body:1: .: name a value"},
		{"a value that is not known", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ .remoteref.key }}" }, "spec.body:1: .remoteref.key is not known here; known are .auth, .line, .remoteRef, .secrets, .token"},
		{"a part that is not known", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ .remoteRef.kye }}" }, "spec.body:1: .remoteRef.kye is not known"},
		{"a credential that is not there", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ .auth.pass }}" }, "spec.body:1: .auth.pass is not one of spec.secrets"},
		{"a credential of two keys by its name alone", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ .secrets.auth }}" }, "spec.body:1: .secrets.auth is not one of spec.secrets"},
		{"the value, where nothing is pushed", func(s *v2alpha1.WebhookSpec) { s.Body = "{{ .value }}" }, "spec.body:1: .value is not known here"},
		{"a header of the connection", func(s *v2alpha1.WebhookSpec) { s.Headers["host"] = "x" }, "spec.headers[host]: this header is the connection's own"},
		{"a header that ends and begins another", func(s *v2alpha1.WebhookSpec) { s.Headers["a\r\nb"] = "x" }, `spec.headers: "a\r\nb" is no name`},
		{"a header twice", func(s *v2alpha1.WebhookSpec) { s.Headers["a"], s.Headers["A"] = "x", "y" }, "the header is there twice"},
		{"a header with a line break", func(s *v2alpha1.WebhookSpec) { s.Headers["a"] = "{{ .line.line }}" }, "spec.headers[a]: the value holds a line break"},
		{"what cannot be decoded, now and not later", func(s *v2alpha1.WebhookSpec) { s.Headers["a"] = "{{ b64dec .auth.password }}" }, "spec.headers[a]:1:"},
		{"a key that is not there, by index", func(s *v2alpha1.WebhookSpec) { s.Headers["a"] = `{{ index .auth "no" }}` }, "there is no such entry"},
		{"a field of the push", func(s *v2alpha1.WebhookSpec) { s.Push = &v2alpha1.WebhookRequest{Body: "{{ nothing }}"} }, "spec.push.body:1:"},
		{"a URL of the delete", func(s *v2alpha1.WebhookSpec) {
			s.Delete = &v2alpha1.WebhookRequest{URL: "https://{{ .remoteRef.key }}/"}
		}, "spec.delete.url: scheme, host"},
		{"a push to a URL that needs a version", func(s *v2alpha1.WebhookSpec) {
			s.URL, s.Push = "https://example.com/?v={{ .remoteRef.version }}", &v2alpha1.WebhookRequest{}
		}, "spec.url:1: .remoteRef.version is not known"},
		{"a credential whose Secret is not there", func(s *v2alpha1.WebhookSpec) { s.Secrets = []v2alpha1.WebhookSecret{secret("a", "absent")} }, `has no key "absent"`},
		{"a name that is taken", func(s *v2alpha1.WebhookSpec) { s.Secrets = []v2alpha1.WebhookSecret{secret("value", "token")} }, "spec.secrets[0].name"},
		{"a credential twice", func(s *v2alpha1.WebhookSpec) {
			s.Secrets = []v2alpha1.WebhookSecret{secret("a", "token"), secret("a", "token")}
		}, "spec.secrets[1]"},
		{"a bundle that is none", func(s *v2alpha1.WebhookSpec) { s.CABundle = []byte("x") }, "spec.caBundle holds no PEM"},
		{"a client certificate that is none", func(s *v2alpha1.WebhookSpec) {
			s.ClientTLS = &v2alpha1.WebhookClientTLS{CertSecretRef: secret("", "token").SecretRef, KeySecretRef: secret("", "password").SecretRef}
		}, "spec.clientTLS: certificate and key are no pair"},
		{"a path that is none", func(s *v2alpha1.WebhookSpec) { s.Result.JSONPath = "$.a[" }, "spec.result.jsonPath: it is no JSONPath"},
		{"a path that goes through all, and through all again", func(s *v2alpha1.WebhookSpec) { s.Result.JSONPath = "$..a..b" }, "spec.result.jsonPath: a path has .. once"},
		{"a filter that does", func(s *v2alpha1.WebhookSpec) { s.Result.JSONPath = "$.a[?(@..b == 1)]" }, "spec.result.jsonPath: paths in a filter"},
		{"a filter that looks at all of it again", func(s *v2alpha1.WebhookSpec) { s.Result.JSONPath = "$.a[?(@.b == $.c)]" }, "spec.result.jsonPath: paths in a filter"},
		{"a path that makes many of one", func(s *v2alpha1.WebhookSpec) { s.Result.JSONPath = "$[0,0][0,0]" }, "spec.result.jsonPath: a path has names"},
		{"a credential in the path", func(s *v2alpha1.WebhookSpec) { s.Result.JSONPath = "$.{{ .auth.user }}" }, "spec.result.jsonPath:1: .auth.user is not known"},
		{"an address of the provider's own network", func(s *v2alpha1.WebhookSpec) { s.URL = "https://10.0.0.1/{{ .remoteRef.key }}" }, "spec.url leads to a private address"},
		{"an address that a push leads to", func(s *v2alpha1.WebhookSpec) { s.Push = &v2alpha1.WebhookRequest{URL: "http://169.254.169.254/"} }, "spec.push.url leads to a link-local address"},
	} {
		t.Run(c.why, func(t *testing.T) {
			spec := good()
			c.set(&spec)

			_, err := loopback().New(t.Context(), environment(), &v2alpha1.Webhook{Spec: spec})
			if err == nil || provider.AsError(err).Code != codes.FailedPrecondition || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v; want InvalidConfig with %q", err, c.want)
			}

			for _, value := range credentials() {
				if value = strings.TrimSpace(value); len(value) > 4 && strings.Contains(err.Error(), value) {
					t.Errorf("the error holds a credential: %v", err)
				}
			}
		})
	}

	s := open(t, good())

	validation, err := s.Validate(t.Context())
	if err != nil || !validation.Unknown || len(validation.Warnings) > 0 {
		t.Errorf("%+v, %v", validation, err)
	}

	spec := good()
	spec.URL = "http://api.example.com/{{ .remoteRef.key }}"
	spec.Push = &v2alpha1.WebhookRequest{URL: "http://api.example.com/push"}

	if validation, _ := open(t, spec).Validate(t.Context()); len(validation.Warnings) != 2 {
		t.Errorf("plain HTTP: %+v", validation)
	}
}

// A template that grows is stopped.
func TestTemplatesAreBounded(t *testing.T) {
	s := open(t, v2alpha1.WebhookSpec{
		URL: "https://api.example.com/", Method: http.MethodPost,
		Body: "{{ .remoteRef.key" + strings.Repeat(" | quote", 60) + " }}",
	})

	if got := one(t, s, provider.Read{Key: `"`}); code(got.Err) != "InvalidArgument INVALID_REQUEST" || !strings.Contains(got.Err.Error(), "more than") {
		t.Errorf("%v", got.Err)
	}

	for _, format := range []string{"%9999999d", "%*d", "%[1]s", "%v%", "%x"} {
		if _, err := bound(100).printf(format, 1); err == nil {
			t.Errorf("format %q is accepted", format)
		}
	}
}

// A request that fails on the way says why, and nothing of what was sent or
// came back.
func TestNoErrorHoldsAValue(t *testing.T) {
	raw := make(chan string, 1)
	listener := httptest.NewUnstartedServer(nil)

	listener.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}

		_, _ = io.WriteString(connection, <-raw)
		_ = connection.Close()
	})
	listener.Start()
	t.Cleanup(listener.Close)

	s := open(t, v2alpha1.WebhookSpec{
		URL:     listener.URL + "/{{ .remoteRef.key }}?t={{ .token.token }}",
		Headers: map[string]v2alpha1.HeaderTemplate{"Authorization": "Bearer {{ .token.token }}", "X-Key": "{{ .remoteRef.key | b64dec }}"},
		Body:    "{{ if .remoteRef.property }}{{ .token.token | b64dec }}{{ end }}",
		Secrets: []v2alpha1.WebhookSecret{secret("token", "token")},
		Result:  v2alpha1.WebhookResult{JSONPath: "$.a"},
	})

	for _, c := range []struct {
		why, answer string
		read        provider.Read
	}{
		{"no status line", token + "\r\n\r\n", provider.Read{}},
		{"a status that is no number", "HTTP/1.1 " + token + "\r\n\r\n", provider.Read{}},
		{"a header that is none", "HTTP/1.1 200 OK\r\n" + token + "\r\n\r\n", provider.Read{}},
		{"a length that is none", "HTTP/1.1 200 OK\r\nContent-Length: " + token + "\r\n\r\n", provider.Read{}},
		{"an encoding that is not known", "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + token + "\r\n\r\n", provider.Read{}},
		{"an answer that is cut", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + token, provider.Read{}},
		{"no JSON", "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n" + token, provider.Read{}},
		{"JSON of another form", "HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n\"" + token + "\"", provider.Read{}},
		{"a property of no JSON", "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{\"a\":\"" + token + "\"}", provider.Read{Shape: provider.Map}},
		{"a template that fails", "", provider.Read{Property: "p"}},
	} {
		if c.answer != "" {
			raw <- c.answer
		}

		c.read.Key = "a2V5"

		got := one(t, s, c.read)
		if got.Err == nil || strings.Contains(got.Err.Error(), token) {
			t.Errorf("%s: %v", c.why, got.Err)
		}
	}

	if got := one(t, s, provider.Read{Key: "YQ0KYg=="}); code(got.Err) != "InvalidArgument INVALID_REQUEST" || !strings.Contains(got.Err.Error(), "line break") {
		t.Errorf("a key that would end a header: %v", got.Err)
	}
}

// counted keeps what is counted.
type counted struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counted) Called(operation, code string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.calls[operation+" "+code]++
}

func TestCallsAreCountedAndPaced(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
		}
	})

	counts := &counted{calls: map[string]int{}}
	env := environment()
	env.Calls = counts

	s := openWith(t, env, v2alpha1.WebhookSpec{
		URL: server.URL + "/{{ .remoteRef.key }}", Push: &v2alpha1.WebhookRequest{}, Delete: &v2alpha1.WebhookRequest{}, Exists: &v2alpha1.WebhookRequest{},
		RequestsPerSecond: 4,
	})

	if _, err := s.Push(t.Context(), provider.Push{Key: "a", Value: []byte("x"), Owner: "me"}); err != nil {
		t.Error(err)
	}

	if _, err := s.Delete(t.Context(), provider.Deletion{Key: "a", Owner: "me"}); err != nil {
		t.Error(err)
	}

	if there, err := s.Exists(t.Context(), "a", ""); !there || err != nil {
		t.Errorf("%t, %v", there, err)
	}

	want := map[string]int{"read 404": 1, "push 200": 1, "delete 200": 1, "exists 200": 1}
	if diff := cmp.Diff(want, maps.Clone(counts.calls)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}

	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Millisecond))
	defer cancel()

	err := s.Read(ctx, []provider.Read{{Key: "a"}})[0].Err
	if typed := provider.AsError(err); typed.Code != codes.ResourceExhausted && typed.Code != codes.DeadlineExceeded {
		t.Errorf("a fifth request in the same second: %v", err)
	}
}

// A config's timeout is its own.
func TestTimeout(t *testing.T) {
	s := open(t, v2alpha1.WebhookSpec{URL: "https://api.example.com/", Timeout: &metav1.Duration{Duration: 3 * time.Second}})
	if s.client.timeout != 3*time.Second {
		t.Errorf("timeout is %s", s.client.timeout)
	}
}
