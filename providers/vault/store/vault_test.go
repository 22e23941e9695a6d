package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// canary is in every token and every secret; it must stand in no error.
const canary = "hvs.canary-3e7a"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// references answers to each reference what the test says.
type references struct {
	secret  func(metav1alpha1.SecretKeySelector) ([]byte, error)
	bundle  func(metav1alpha1.CASource) ([]byte, error)
	account func(metav1alpha1.ServiceAccountSelector, []string) (string, error)
}

var _ provider.References = (*references)(nil)

func (r *references) SecretKey(_ context.Context, ref metav1alpha1.SecretKeySelector) ([]byte, error) {
	if r.secret == nil {
		return []byte(canary + "\n"), nil
	}

	return r.secret(ref)
}

func (r *references) CABundle(_ context.Context, source metav1alpha1.CASource) ([]byte, error) {
	return r.bundle(source)
}

func (r *references) ServiceAccountToken(_ context.Context, ref metav1alpha1.ServiceAccountSelector, audiences ...string) (string, error) {
	if r.account == nil {
		return canary + " of " + ref.Name + " for " + strings.Join(audiences, ","), nil
	}

	return r.account(ref, audiences)
}

func (r *references) Namespace() string { return "ns" }

// request is one that the server got.
type request struct {
	path, namespace, token string
	query                  string
	body                   map[string]any
}

// vault speaks as much of Vault's API as a store needs.
type vault struct {
	*httptest.Server

	mu       sync.Mutex
	requests []request
	// opened and closed count connections.
	opened, closed int
	// answers by path below /v1/ come before the usual ones.
	answers map[string]http.HandlerFunc
	logins  int
	// lease and renewable are what a login answers, renewed what a renewal
	// does, in seconds.
	lease, renewed int
	renewable      bool
}

// newVault starts a server with a certificate of its own authority.
func newVault(t *testing.T, edit ...func(*tls.Config)) *vault {
	t.Helper()

	v := &vault{answers: map[string]http.HandlerFunc{}, lease: 90, renewed: 90, renewable: true}
	v.Server = httptest.NewUnstartedServer(http.HandlerFunc(v.serve))
	// That a client refuses the certificate is part of some tests.
	v.Config.ErrorLog = log.New(io.Discard, "", 0)
	v.Config.ConnState = v.connection

	v.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	for _, e := range edit {
		e(v.TLS)
	}

	v.StartTLS()
	t.Cleanup(v.Close)

	return v
}

func (v *vault) serve(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/v1/")
	got := request{path: name, namespace: r.Header.Get("X-Vault-Namespace"), token: r.Header.Get("X-Vault-Token"), query: r.URL.RawQuery}

	if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
		_ = json.Unmarshal(body, &got.body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}

	v.mu.Lock()
	v.requests = append(v.requests, got)
	answer := v.answers[name]

	if name == "auth/kubernetes/login" && answer == nil {
		v.logins++
	}

	token, lease, renewed, renewable := fmt.Sprintf("%s-%d", canary, v.logins), v.lease, v.renewed, v.renewable
	v.mu.Unlock()

	switch {
	case answer != nil:
		answer(w, r)
	case name == "auth/kubernetes/login":
		fmt.Fprintf(w, `{"auth":{"client_token":%q,"lease_duration":%d,"renewable":%v}}`, token, lease, renewable)
	case name == "auth/token/renew-self":
		fmt.Fprintf(w, `{"auth":{"client_token":%q,"lease_duration":%d,"renewable":%v}}`, got.token, renewed, renewable)
	case name == "auth/token/lookup-self":
		fmt.Fprintf(w, `{"data":{"id":%q}}`, got.token)
	case name == "auth/token/revoke-self":
		w.WriteHeader(http.StatusNoContent)
	case name == "secret/data/app":
		fmt.Fprintf(w, `{"data":{"data":{"a":"1","b":2.50,"c":%q},"metadata":{"version":3,"created_time":"then"}}}`, canary)
	default:
		http.Error(w, `{"errors":[]}`, http.StatusNotFound)
	}
}

func (v *vault) connection(_ net.Conn, state http.ConnState) {
	v.mu.Lock()
	defer v.mu.Unlock()

	switch state {
	case http.StateNew:
		v.opened++
	case http.StateClosed:
		v.closed++
	case http.StateActive, http.StateIdle, http.StateHijacked:
	}
}

// connections that were opened, and those that are still open.
func (v *vault) connections() (opened, open int) {
	v.mu.Lock()
	defer v.mu.Unlock()

	return v.opened, v.opened - v.closed
}

// answer makes a path answer a status and a body from now on.
func (v *vault) answer(name string, status int, body string) {
	v.handle(name, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// handle makes a path answer in some way from now on; nil is as usual.
func (v *vault) handle(name string, answer http.HandlerFunc) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.answers[name] = answer
}

// refuse makes a path answer as Vault does without permission.
func (v *vault) refuse(name string) {
	v.answer(name, http.StatusForbidden, `{"errors":["2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n"]}`)
}

// got returns the requests of a path.
func (v *vault) got(name string) []request {
	v.mu.Lock()
	defer v.mu.Unlock()

	var found []request

	for _, r := range v.requests {
		if r.path == name {
			found = append(found, r)
		}
	}

	return found
}

// last returns the latest request of a path.
func (v *vault) last(t *testing.T, name string) request {
	t.Helper()

	found := v.got(name)
	if len(found) == 0 {
		t.Fatalf("no request of %s came", name)
	}

	return found[len(found)-1]
}

// certificate of the server, as a bundle.
func (v *vault) certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.Certificate().Raw})
}

// clock is set by the test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(d)
}

// setup is a config and the other inputs of a store.
type setup struct {
	spec       v2alpha1.VaultSpec
	references references
	clock      clock
	retries    int
	// own allows the process's own identity, whose token is in tokenFile.
	own       bool
	tokenFile string
	// google is the way to Google Cloud.
	google http.RoundTripper
	// backend that makes the stores; nil means one of its own.
	backend *process
}

// with returns the setup of a Kubernetes login, and what edit makes of it.
func with(v *vault, edit ...func(*setup)) *setup {
	s := &setup{
		spec: v2alpha1.VaultSpec{
			Server: v.URL, Path: "secret", CABundle: v.certificate(),
			Auth: v2alpha1.VaultAuth{Kubernetes: &v2alpha1.VaultKubernetesAuth{Role: "reader", ServiceAccountRef: &metav1alpha1.ServiceAccountSelector{Name: "app"}}},
		},
		clock: clock{now: time.Unix(1_800_000_000, 0)},
	}

	for _, e := range edit {
		e(s)
	}

	return s
}

// token makes the login one by a token of the config's.
func token(s *setup) {
	s.spec.Auth = v2alpha1.VaultAuth{TokenSecretRef: &metav1alpha1.SecretKeySelector{Name: "vault", Key: "token"}}
}

// try makes the store, which is closed when the test ends.
func (s *setup) try(t *testing.T) (*Store, error) {
	t.Helper()

	env := provider.Environment{References: &s.references, Retry: provider.Retry{MaxRetries: &s.retries, Interval: time.Millisecond}}

	if s.backend == nil {
		s.backend = newProcess()
		s.backend.now = s.clock.Now
		s.backend.tokenFile = s.tokenFile
		s.backend.google = s.google
	}

	env.OwnIdentity = s.own

	store, err := s.backend.New(t.Context(), env, &v2alpha1.Vault{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: s.spec})
	if err == nil {
		t.Cleanup(func() { _ = store.Close(context.Background()) })
	}

	return store, err
}

// open makes a store that must be made.
func (s *setup) open(t *testing.T) *Store {
	t.Helper()

	store, err := s.try(t)
	if err != nil {
		t.Fatal(err)
	}

	return store
}

// read reads one property.
func read(t *testing.T, s *Store) provider.Result {
	t.Helper()

	return s.Read(t.Context(), []provider.Read{{Key: "app", Property: "a"}})[0]
}

// reads fails the test unless the property comes.
func reads(t *testing.T, s *Store, why string) {
	t.Helper()

	if result := read(t, s); result.Err != nil || string(result.Value) != "1" {
		t.Fatalf("%s: %+v", why, result)
	}
}

// errorOf returns an error that must be there and must not quote the canary.
func errorOf(t *testing.T, err error) *provider.Error {
	t.Helper()

	if err == nil {
		t.Fatal("no error")
	}

	if strings.Contains(err.Error(), canary) {
		t.Errorf("the error holds a credential or a value: %v", err)
	}

	return provider.AsError(err)
}
