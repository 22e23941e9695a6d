package token

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer issues and reviews tokens.
type apiServer struct {
	mu sync.Mutex
	// made is the number of tokens of each ServiceAccount.
	made map[string]int
	// user that the operator runs as.
	user string
	// powerful audiences are the API server's own.
	powerful string
	status   int
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")

	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if bearer != "operator" && !strings.HasSuffix(bearer, "/"+a.powerful) {
			a.fail(w, http.StatusUnauthorized)

			return
		}

		a.answer(w, http.StatusCreated, authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: a.user}}})
	case strings.HasSuffix(r.URL.Path, "/token"):
		if a.status != 0 {
			a.fail(w, a.status)

			return
		}

		var request authenticationv1.TokenRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			a.fail(w, http.StatusBadRequest)

			return
		}

		account := strings.Split(strings.TrimSuffix(r.URL.Path, "/token"), "/")
		name := account[len(account)-3] + "/" + account[len(account)-1]
		a.made[name]++

		request.Status = authenticationv1.TokenRequestStatus{
			Token: fmt.Sprintf("%s#%d/%s", name, a.made[name], request.Spec.Audiences[0]), ExpirationTimestamp: metav1.NewTime(time.Now().Add(24 * time.Hour)),
		}

		a.answer(w, http.StatusCreated, request)
	default:
		a.fail(w, http.StatusNotFound)
	}
}

func (a *apiServer) fail(w http.ResponseWriter, code int) {
	reason := map[int]metav1.StatusReason{401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound}[code]

	a.answer(w, code, metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "no"}) //nolint:gosec // an HTTP status
}

func (a *apiServer) answer(w http.ResponseWriter, code int, object any) {
	w.WriteHeader(code)

	if err := json.NewEncoder(w).Encode(object); err != nil {
		panic(err)
	}
}

// clock is set by tests.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(d)
}

func source(t *testing.T, a *apiServer) (*Source, *clock) {
	t.Helper()

	a.made = map[string]int{}

	server := httptest.NewServer(a)
	t.Cleanup(server.Close)

	config := &rest.Config{Host: server.URL, BearerToken: "operator", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}

	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	s, c := New(clients, config), &clock{now: time.Now()}
	s.now = c.Now

	return s, c
}

var reader = Identity{Namespace: "tenant", Name: "reader", Audience: "vault"}

func TestTokensAreKeptAndRenewed(t *testing.T) {
	t.Parallel()

	a := &apiServer{powerful: "api"}
	s, c := source(t, a)

	get := func(who Identity) string {
		t.Helper()

		got, err := s.Token(t.Context(), who)
		if err != nil {
			t.Fatal(err)
		}

		return got
	}

	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() { get(reader) })
	}

	wait.Wait()

	if got := get(reader); got != "tenant/reader#1/vault" {
		t.Errorf("twenty callers at once have made %q", got)
	}

	other := reader
	other.Audience = "aws"

	if got := get(other); got != "tenant/reader#2/aws" {
		t.Errorf("another audience gets %q", got)
	}

	// Renewed before it ends, while the former one is still given.
	c.forward(49 * time.Minute)

	if got := get(reader); got != "tenant/reader#1/vault" {
		t.Errorf("the caller waits for a renewal that need not be waited for: %q", got)
	}

	eventually(t, func() bool { return get(reader) == "tenant/reader#3/vault" })

	// One that has ended is never given.
	c.forward(2 * time.Hour)

	if got := get(reader); got != "tenant/reader#4/vault" {
		t.Errorf("a token that has ended is given: %q", got)
	}

	s.Forget(reader, "tenant/reader#3/vault")

	if got := get(reader); got != "tenant/reader#4/vault" {
		t.Errorf("the refusal of a former token throws away the present one: %q", got)
	}

	s.Forget(reader, "tenant/reader#4/vault")

	if got := get(reader); got != "tenant/reader#5/vault" {
		t.Errorf("a token that was refused is given: %q", got)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()

	own := Identity{Audience: "vault"}

	for _, c := range []struct {
		why    string
		server *apiServer
		who    Identity
		want   string
		token  string
	}{
		{why: "the operator's own ServiceAccount is found", server: &apiServer{user: "system:serviceaccount:eso:operator"}, who: own, token: "eso/operator#1/vault"},
		{why: "the operator is no ServiceAccount", server: &apiServer{user: "admin"}, who: own, want: `the operator runs as user "admin", which is none`},
		{why: "there is no such ServiceAccount", server: &apiServer{status: 404}, who: reader, want: `ServiceAccount "reader" in namespace "tenant": it does not exist`},
		{why: "the operator may not", server: &apiServer{status: 403}, who: reader, want: "bind the ClusterRole external-secrets-operator-tokens"},
		{why: "the API server fails", server: &apiServer{status: 500}, who: reader, want: "cannot get a token"},
		{why: "a token that the API server accepts is kept back", server: &apiServer{powerful: "vault"}, who: reader, want: "choose another audience"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			if c.server.powerful == "" {
				c.server.powerful = "api"
			}

			s, _ := source(t, c.server)

			got, err := s.Token(t.Context(), c.who)
			if got != c.token || (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Token = %q, %v; want %q, %q", got, err, c.token, c.want)
			}

			if err != nil && strings.Contains(err.Error(), "#1") {
				t.Errorf("the error holds a token: %v", err)
			}
		})
	}
}

// A failure is not asked for again at each call, and not kept for long.
func TestFailuresAreKeptShortly(t *testing.T) {
	t.Parallel()

	a := &apiServer{powerful: "api", status: 403}
	s, c := source(t, a)

	for range 3 {
		if _, err := s.Token(t.Context(), reader); err == nil {
			t.Fatal("no error")
		}
	}

	a.mu.Lock()
	a.status = 0
	a.mu.Unlock()

	if _, err := s.Token(t.Context(), reader); err == nil {
		t.Error("a failure is not kept")
	}

	c.forward(failurePause)

	if _, err := s.Token(t.Context(), reader); err != nil {
		t.Errorf("a failure is kept too long: %v", err)
	}
}

// A wait ends with the caller's context.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()

	a := &apiServer{powerful: "api"}
	s, _ := source(t, a)

	a.mu.Lock()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_, err := s.Token(ctx, reader)

	a.mu.Unlock()

	if err == nil {
		t.Error("a caller that has gone gets a token")
	}

	if _, err := s.Token(t.Context(), reader); err != nil {
		t.Errorf("another caller pays for it: %v", err)
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()

	for range 200 {
		if holds() {
			return
		}

		time.Sleep(10 * time.Millisecond)
	}

	t.Error("it does not come to pass")
}
