package store

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// canary is a token that must stand in no error.
const canary = "hvs.canary"

// references resolve to the same values whatever is asked.
type references struct{ token string }

func (r *references) SecretKey(context.Context, metav1alpha1.SecretKeySelector) ([]byte, error) {
	return []byte(r.token + "\n"), nil
}

func (r *references) CABundle(context.Context, metav1alpha1.CASource) ([]byte, error) {
	return []byte("no PEM"), nil
}

func (r *references) ServiceAccountToken(_ context.Context, ref metav1alpha1.ServiceAccountSelector, audiences ...string) (string, error) {
	return ref.Name + "/" + strings.Join(audiences, ","), nil
}

func (r *references) Namespace() string { return "ns" }

// vault speaks as much of Vault's API as a store needs.
type vault struct {
	*httptest.Server

	mu       sync.Mutex
	requests map[string]int
	headers  http.Header
	status   map[string]int
	logins   int
	ttl      int
}

func newVault(t *testing.T) *vault {
	t.Helper()

	v := &vault{requests: map[string]int{}, status: map[string]int{}, ttl: 90}
	v.Server = httptest.NewTLSServer(http.HandlerFunc(v.serve))
	t.Cleanup(v.Close)

	return v
}

func (v *vault) serve(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()

	name := strings.TrimPrefix(r.URL.Path, "/v1/")
	v.requests[name]++
	v.headers = r.Header.Clone()

	if status := v.status[name]; status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"errors":["permission denied"]}`)

		return
	}

	auth := func() {
		fmt.Fprintf(w, `{"auth":{"client_token":"token-%d","lease_duration":%d,"renewable":true}}`, v.logins, v.ttl)
	}

	switch name {
	case "auth/kubernetes/login":
		v.logins++

		auth()
	case "auth/token/renew-self":
		auth()
	case "auth/token/lookup-self":
		fmt.Fprint(w, `{"data":{}}`)
	case "secret/data/app":
		fmt.Fprint(w, `{"data":{"data":{"a":"1","b":"2"},"metadata":{"version":1,"created_time":"t"}}}`)
	}
}

func (v *vault) set(name string, status int) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.status[name] = status
}

func (v *vault) counts() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()

	return maps.Clone(v.requests)
}

func (v *vault) config(edit func(*v2alpha1.VaultSpec)) *v2alpha1.Vault {
	config := &v2alpha1.Vault{Spec: v2alpha1.VaultSpec{
		Server: v.URL, Path: "secret",
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.Certificate().Raw}),
		Auth:     v2alpha1.VaultAuth{Kubernetes: &v2alpha1.VaultKubernetesAuth{Role: "reader", ServiceAccountRef: &metav1alpha1.ServiceAccountSelector{Name: "app"}}},
	}}
	if edit != nil {
		edit(&config.Spec)
	}

	return config
}

func token(spec *v2alpha1.VaultSpec) {
	spec.Auth = v2alpha1.VaultAuth{TokenSecretRef: &metav1alpha1.SecretKeySelector{Name: "token", Key: "token"}}
}

func open(t *testing.T, v *vault, edit func(*v2alpha1.VaultSpec)) *Store {
	t.Helper()

	none := 0

	s, err := New(t.Context(), provider.Environment{References: &references{token: canary}, Retry: provider.Retry{MaxRetries: &none}}, v.config(edit))
	if err != nil {
		t.Fatal(err)
	}

	return s
}

func read(t *testing.T, s *Store) provider.Result {
	t.Helper()

	return s.Read(t.Context(), []provider.Read{{Key: "app", Property: "a"}})[0]
}

func TestLoginIsSharedRenewedAndRevoked(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	s := open(t, v, func(spec *v2alpha1.VaultSpec) { spec.Namespace = "team" })
	now := time.Now()
	s.login.now = func() time.Time { return now }
	s.login.renewAt, s.login.expires = now.Add(time.Minute), now.Add(90*time.Second)

	for range 3 {
		if result := read(t, s); result.Err != nil || string(result.Value) != "1" {
			t.Fatalf("result: %+v", result)
		}
	}

	if got := v.counts(); got["auth/kubernetes/login"] != 1 || got["auth/token/renew-self"] != 0 {
		t.Errorf("requests: %v", got)
	}

	if v.headers.Get("X-Vault-Token") != "token-1" || v.headers.Get("X-Vault-Namespace") != "team" {
		t.Error("the request carries another token or namespace")
	}

	now = now.Add(61 * time.Second)

	if result := read(t, s); result.Err != nil {
		t.Fatal(result.Err)
	}

	if got := v.counts(); got["auth/token/renew-self"] != 1 || got["auth/kubernetes/login"] != 1 {
		t.Errorf("when two thirds of its life are over the login is not renewed: %v", got)
	}

	v.set("auth/token/renew-self", http.StatusForbidden)

	now = now.Add(61 * time.Second)

	if result := read(t, s); result.Err != nil {
		t.Fatal(result.Err)
	}

	if got := v.counts(); got["auth/kubernetes/login"] != 2 {
		t.Errorf("a login that cannot be renewed is not made anew: %v", got)
	}

	v.set("auth/kubernetes/login", http.StatusServiceUnavailable)

	now = now.Add(61 * time.Second)

	if result := read(t, s); result.Err != nil {
		t.Errorf("a login that still holds is given up because Vault's login is away: %v", result.Err)
	}

	now = now.Add(time.Hour)

	if result := read(t, s); provider.AsError(result.Err).Code != codes.Unavailable {
		t.Errorf("a login that has ended: %v", result.Err)
	}

	if err := s.Close(t.Context()); err != nil || v.counts()["auth/token/revoke-self"] != 1 {
		t.Errorf("the login is not revoked: %v, %v", err, v.counts())
	}
}

func TestTokenOfTheConfigIsNotRevoked(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	s := open(t, v, token)

	if result := read(t, s); result.Err != nil {
		t.Fatal(result.Err)
	}

	if got := v.headers.Get("X-Vault-Token"); got != canary {
		t.Error("the token's line break is sent, too, or another token")
	}

	if err := s.Close(t.Context()); err != nil || v.counts()["auth/token/revoke-self"] != 0 {
		t.Errorf("a token that others may use was revoked: %v", err)
	}
}

// Vault answers 403 both to a token that has ended and to one without the
// right to read.
func TestRefusalsAreToldApart(t *testing.T) {
	t.Parallel()

	t.Run("no right to read this secret", func(t *testing.T) {
		t.Parallel()

		v := newVault(t)
		s := open(t, v, token)
		v.set("secret/data/app", http.StatusForbidden)

		for range 3 {
			if got := provider.AsError(read(t, s).Err); got.Code != codes.PermissionDenied || strings.Contains(got.Message, canary) {
				t.Errorf("%v: %s", got.Code, got.Message)
			}
		}

		if got := v.counts()["auth/token/lookup-self"]; got != 1 {
			t.Errorf("three refusals asked %d times about the token", got)
		}
	})

	t.Run("a token that has ended", func(t *testing.T) {
		t.Parallel()

		v := newVault(t)
		s := open(t, v, token)
		v.set("secret/data/app", http.StatusForbidden)
		v.set("auth/token/lookup-self", http.StatusForbidden)

		if got := provider.AsError(read(t, s).Err); got.Code != codes.Unauthenticated || strings.Contains(got.Message, canary) {
			t.Errorf("%v: %s", got.Code, got.Message)
		}

		if _, err := s.Validate(t.Context()); provider.AsError(err).Code != codes.Unauthenticated {
			t.Errorf("Validate: %v", err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()

	v := newVault(t)

	for _, c := range []struct {
		why  string
		edit func(*v2alpha1.VaultSpec)
		code codes.Code
		want string
	}{
		{"a server whose certificate nobody vouches for", func(s *v2alpha1.VaultSpec) { s.CABundle = nil }, codes.Unavailable, "x509"},
		{"a bundle that is none", func(s *v2alpha1.VaultSpec) { s.CABundle = []byte("x") }, codes.FailedPrecondition, "spec.caBundle"},
		{"a referenced bundle that is none", func(s *v2alpha1.VaultSpec) { s.CABundle = nil; s.CAProvider = &metav1alpha1.CASource{} }, codes.FailedPrecondition, "spec.caProvider"},
		{"no way to log in", func(s *v2alpha1.VaultSpec) { s.Auth = v2alpha1.VaultAuth{} }, codes.FailedPrecondition, "tokenSecretRef or kubernetes"},
		{"a method that is not mounted", func(s *v2alpha1.VaultSpec) { s.Auth.Kubernetes.MountPath = "elsewhere" }, codes.Unavailable, "no token"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			none := 0

			_, err := New(t.Context(), provider.Environment{References: &references{token: canary}, Retry: provider.Retry{MaxRetries: &none}}, v.config(c.edit))
			if got := provider.AsError(orSuccess(err)); got.Code != c.code || !strings.Contains(got.Message, c.want) {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func orSuccess(err error) error {
	if err == nil {
		return errors.New("no error")
	}

	return err
}
