package store

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestReadsABatch(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	v.answer("secret/metadata/app", http.StatusOK, `{"data":{"custom_metadata":{"team":"a"},"versions":{}}}`)
	store := with(v, token).open(t)

	results := store.Read(t.Context(), []provider.Read{
		{Key: "app", Property: "a"},
		{Key: "app", Property: "b"},
		{Key: "app", Shape: provider.Map},
		{Key: "app", Property: "a", KnownRevision: "3@then"},
		{Key: "app", Property: "none"},
		{Key: "app", Version: "2", Property: "a"},
		{Key: "app", Metadata: true, Property: "team"},
		{Key: "none"},
		{Key: "../app"},
	})

	got := make([]string, 0, len(results))

	for _, result := range results {
		switch {
		case result.Err != nil:
			got = append(got, errorOf(t, result.Err).Code.String())
		case result.NotModified:
			got = append(got, "not modified")
		case result.Map != nil:
			got = append(got, "map of "+string(result.Map["b"]))
		default:
			got = append(got, string(result.Value)+" at "+result.Revision)
		}
	}

	want := []string{"1 at 3@then", "2.50 at 3@then", "map of 2.50", "not modified", "NotFound", "1 at 3@then", "a at " + results[6].Revision, "NotFound", "InvalidArgument"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}

	requests := v.got(appPath)
	if len(requests) != 2 {
		t.Errorf("two versions of one secret took %d requests", len(requests))
	}

	for _, r := range requests {
		if r.token != canary {
			t.Error("the token was not sent, or with its line break")
		}
	}

	if len(v.got(lookupPath)) != 0 {
		t.Error("reads that succeed asked about the token")
	}
}

// A key is a path and nothing else.
func TestKeysAreEscaped(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	store := with(v, token).open(t)

	for _, key := range []string{"a b", "a?version=1", "a#b", "a%2e%2e%2fb", "ä", "a;b=c", `a\..\b`} {
		_ = store.Read(t.Context(), []provider.Read{{Key: key}})

		if got := v.last(t, "secret/data/"+key); got.query != "" {
			t.Errorf("key %q was sent with the query %q", key, got.query)
		}
	}
}

// Only what the engine itself answers proves that a secret is absent.
func TestNotFoundIsProven(t *testing.T) {
	t.Parallel()

	const engine = "sys/internal/ui/mounts/secret"

	for _, c := range []struct {
		why    string
		status int
		body   string
		// engine is the answer about the engine.
		engineStatus int
		engine       string
		code         codes.Code
		want         string
	}{
		{
			why: "no such secret, of an engine of version 2", status: 404, body: `{"errors":[]}`,
			engineStatus: 200, engine: `{"data":{"type":"kv","options":{"version":"2"}}}`, code: codes.NotFound, want: "does not exist",
		},
		{
			why: "an engine of version 1 answers so to any path with data in it", status: 404, body: `{"errors":[]}`,
			engineStatus: 200, engine: `{"data":{"type":"kv","options":{"version":"1"}}}`, code: codes.FailedPrecondition, want: `the engine at "secret" is of version 1`,
		},
		{
			why: "an engine without options is of version 1", status: 404, body: `{"errors":[]}`,
			engineStatus: 200, engine: `{"data":{"type":"kv","options":null}}`, code: codes.FailedPrecondition, want: "is of version 1",
		},
		{
			why: "the token may not ask about the engine: then the answer counts", status: 404, body: `{"errors":[]}`,
			engineStatus: 403, engine: `{"errors":["preflight capability check returned 403"]}`, code: codes.NotFound, want: "does not exist",
		},
		{
			why: "no such mount", status: 404, body: `{"errors":["no handler for route \"secret/data/app\". route entry not found."]}`,
			code: codes.FailedPrecondition, want: `Vault has no engine at "secret"`,
		},
		{why: "a gateway", status: 404, body: "404 page not found", code: codes.Unavailable, want: "not as Vault does"},
		{why: "a gateway without words", status: 404, code: codes.Unavailable, want: "not as Vault does"},
		{why: "a page in place of an answer", status: 200, body: "<html>" + canary, code: codes.Unavailable, want: "not answer as Vault does"},
		{why: "nothing in place of an answer", status: 200, code: codes.Unavailable, want: "holds no data"},
		{why: "no content", status: 204, code: codes.Unavailable, want: "holds no data"},
		{why: "an answer without data", status: 200, body: `{}`, code: codes.Unavailable, want: "holds no data"},
		{why: "an answer of version 1", status: 200, body: `{"data":{"password":"` + canary + `"}}`, code: codes.FailedPrecondition, want: "is spec.version right?"},
		{why: "sealed", status: 503, body: `{"errors":["Vault is sealed"]}`, code: codes.Unavailable, want: "Vault is sealed"},
		{why: "a server that echoes what it was sent", status: 500, body: "you sent " + canary, code: codes.Unavailable, want: "Vault answers 500: Internal Server Error"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			store := with(v, token).open(t)
			v.answer(appPath, c.status, c.body)
			v.answer(engine, c.engineStatus, c.engine)

			if c.engineStatus == 0 {
				v.handle(engine, nil)
			}

			for range 3 {
				if got := errorOf(t, read(t, store).Err); got.Code != c.code || !strings.Contains(got.Message, c.want) {
					t.Errorf("%v: %s", got.Code, got.Message)
				}
			}

			asked := 0
			if c.engineStatus != 0 {
				asked = 1
			}

			if n := len(v.got(engine)); n != asked {
				t.Errorf("it was asked %d times about the engine, not %d", n, asked)
			}
		})
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why      string
		status   int
		code     codes.Code
		after    time.Duration
		requests int
	}{
		{why: "a server that fails may do better the next time", status: http.StatusBadGateway, code: codes.Unavailable, requests: 3},
		{why: "a throttled caller receives the retry delay, and does not wait here", status: http.StatusTooManyRequests, code: codes.ResourceExhausted, after: 30 * time.Minute, requests: 1},
		{why: "a refusal stays one", status: http.StatusForbidden, code: codes.PermissionDenied, requests: 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			store := with(v, token, func(s *setup) { s.retries = 2 }).open(t)
			v.handle(appPath, func(w http.ResponseWriter, _ *http.Request) {
				if c.after > 0 {
					w.Header().Set("Retry-After", "1800")
				}

				http.Error(w, `{"errors":["no"]}`, c.status)
			})

			if got := errorOf(t, read(t, store).Err); got.Code != c.code || got.RetryAfter != c.after {
				t.Errorf("%+v", got)
			}

			if n := len(v.got(appPath)); n != c.requests {
				t.Errorf("with two retries %d requests were made, not %d", n, c.requests)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()

	for attempt, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 3: 5 * time.Second, 1000: 5 * time.Second} {
		if got := backoff(time.Second, 5*time.Second, attempt, nil); got != want {
			t.Errorf("before retry %d it waits %s, not %s", attempt+1, got, want)
		}
	}
}

// The author of a config chooses the server, and so what it answers.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	store := with(v, token).open(t)

	for _, status := range []int{http.StatusOK, http.StatusNotFound, http.StatusInternalServerError} {
		ended := make(chan bool, 1)
		v.handle(appPath, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)

			_, err := io.WriteString(w, `{"data":{"a":"`)
			for sent := 0; err == nil && sent < 10*maxAnswer; sent += 1 << 20 {
				_, err = io.WriteString(w, strings.Repeat("a", 1<<20))
			}

			ended <- err != nil
		})

		if got := errorOf(t, read(t, store).Err); got.Code != codes.ResourceExhausted || got.Reason != pb.ReasonTooLarge {
			t.Errorf("%d: %v: %s", status, got.Code, got.Message)
		}

		if !<-ended {
			t.Errorf("%d: the whole answer was read", status)
		}
	}
}

// A token is sent to the server of the config, and where that server's cluster
// has its active node.
func TestRedirects(t *testing.T) {
	t.Parallel()

	t.Run("of a standby node", func(t *testing.T) {
		t.Parallel()

		v := newVault(t)
		store := with(v, token).open(t)
		v.handle("secret/data/standby", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/"+appPath, http.StatusTemporaryRedirect)
		})

		for range 10 {
			result := store.Read(t.Context(), []provider.Read{{Key: "standby", Property: "a"}})[0]
			if result.Err != nil || v.last(t, appPath).token != canary {
				t.Fatalf("the redirect was not followed: %+v", result)
			}
		}

		if opened, _ := v.connections(); opened > 2 {
			t.Errorf("ten redirects took %d connections", opened)
		}
	})

	for _, c := range []struct {
		why string
		to  func(thief *httptest.Server) http.HandlerFunc
	}{
		{
			why: "to plain HTTP", to: func(thief *httptest.Server) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
				}
			},
		},
		{
			why: "and redirected again", to: func(thief *httptest.Server) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/"+appPath {
						http.Redirect(w, r, "/v1/hop", http.StatusTemporaryRedirect)

						return
					}

					http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
				}
			},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			stolen := make(chan string, 10)
			thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen <- r.Header.Get("X-Vault-Token") }))
			t.Cleanup(thief.Close)

			v := newVault(t)
			store := with(v, token).open(t)
			v.handle(appPath, c.to(thief))
			v.handle("hop", c.to(thief))

			if got := errorOf(t, read(t, store).Err); got.Code != codes.Unavailable {
				t.Errorf("%v: %s", got.Code, got.Message)
			}

			if len(stolen) != 0 {
				t.Errorf("%d requests went there, the first with the token %q", len(stolen), <-stolen)
			}
		})
	}
}

func TestCallerGoesAway(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	store := with(v, token).open(t)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	v.handle(appPath, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})

	result := store.Read(ctx, []provider.Read{{Key: "app"}})[0]
	if got := errorOf(t, result.Err); got.Code != codes.Canceled {
		t.Errorf("%v: %s", got.Code, got.Message)
	}
}

func TestLeavesNoConnection(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why string
		use func(*testing.T, *vault)
	}{
		{why: "a store that was closed", use: func(t *testing.T, v *vault) {
			store := with(v).open(t)
			reads(t, store, "over a connection")

			if err := store.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{why: "a store that could not be made", use: func(t *testing.T, v *vault) {
			v.refuse(loginPath)

			if _, err := with(v).try(t); err == nil {
				t.Fatal("it was made")
			}
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			c.use(t, v)

			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				if _, open := v.connections(); open == 0 {
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("%d connections are open", open)
				}
			}
		})
	}
}

func TestCAProvider(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	source := metav1alpha1.CASource{ConfigMapRef: &metav1alpha1.ConfigMapKeySelector{Name: "ca", Key: "ca.crt"}}
	store := with(v, func(s *setup) {
		s.spec.CABundle, s.spec.CAProvider = nil, &source
		s.references.bundle = func(got metav1alpha1.CASource) ([]byte, error) {
			if diff := cmp.Diff(source, got); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}

			return v.certificate(), nil
		}
	}).open(t)

	reads(t, store, "with the referenced bundle")
}

func TestWarnsOfPlainHTTP(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	plain := httptest.NewServer(v.Config.Handler)
	t.Cleanup(plain.Close)

	store := with(v, token, func(s *setup) { s.spec.Server = plain.URL }).open(t)

	validation, err := store.Validate(t.Context())
	if err != nil || len(validation.Warnings) != 1 || !strings.Contains(validation.Warnings[0], "unencrypted") {
		t.Errorf("%+v, %v", validation, err)
	}
}

// Vault's library takes its settings from the environment, which is that of the
// provider's Pod and no tenant's.
func TestEnvironmentDoesNotCount(t *testing.T) {
	t.Setenv("VAULT_TOKEN", "of-the-environment")
	t.Setenv("VAULT_NAMESPACE", "of-the-environment")
	t.Setenv("VAULT_ADDR", "http://127.0.0.1:1")
	t.Setenv("VAULT_SKIP_VERIFY", "true")

	v := newVault(t)
	s := with(v)
	store := s.open(t)

	s.clock.pass(time.Minute)
	reads(t, store, "of the config's server")

	if err := store.Close(t.Context()); err != nil {
		t.Error(err)
	}

	for _, path := range []string{loginPath, renewPath, appPath, revokePath} {
		if got := v.last(t, path); got.namespace != "" || got.token == "of-the-environment" {
			t.Errorf("%s: %+v", path, got)
		}
	}

	if _, err := with(v, func(s *setup) { s.spec.CABundle = nil }).try(t); err == nil {
		t.Error("the server's certificate was not verified")
	}
}
