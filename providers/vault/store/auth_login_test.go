package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
	loginPath  = "auth/kubernetes/login"
	renewPath  = "auth/token/renew-self"
	lookupPath = "auth/token/lookup-self"
	revokePath = "auth/token/revoke-self"
	appPath    = "secret/data/app"
)

// What is sent to log in.
func TestLogin(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why  string
		edit func(*setup)
		path string
		want map[string]any
	}{
		{
			why: "a ServiceAccount's token is for Vault alone", path: loginPath, edit: func(*setup) {},
			want: map[string]any{"role": "reader", "jwt": canary + " of app for vault"},
		},
		{
			why: "a token may stand in a Secret, with a line break behind it", path: loginPath,
			edit: func(s *setup) {
				s.spec.Auth.Kubernetes.ServiceAccountRef, s.spec.Auth.Kubernetes.SecretRef = nil, &metav1alpha1.SecretKeySelector{Name: "jwt", Key: "token"}
			},
			want: map[string]any{"role": "reader", "jwt": canary},
		},
		{
			why: "the method may be mounted elsewhere", path: "auth/clusters/east/login",
			edit: func(s *setup) { s.spec.Auth.Kubernetes.MountPath = "/clusters/east/" },
			want: map[string]any{"role": "reader", "jwt": canary + " of app for vault"},
		},
		{
			why: "the Pod's own token, where that is allowed", path: loginPath,
			edit: func(s *setup) { s.spec.Auth.Kubernetes.ServiceAccountRef, s.own = nil, true },
			want: map[string]any{"role": "reader", "jwt": "the Pod's own"},
		},
		{
			why: "an AppRole by its id", path: "auth/approle/login",
			edit: auth(v2alpha1.VaultAuth{AppRole: &v2alpha1.VaultAppRoleAuth{RoleID: "id", SecretRef: key("secret")}}),
			want: map[string]any{"role_id": "id", "secret_id": canary},
		},
		{
			why: "an AppRole whose id is in a Secret", path: "auth/ours/login",
			edit: auth(v2alpha1.VaultAuth{AppRole: &v2alpha1.VaultAppRoleAuth{Path: "ours", RoleRef: ref("role"), SecretRef: key("secret")}}),
			want: map[string]any{"role_id": canary, "secret_id": canary},
		},
		{
			why: "a password, without the line's end that an editor leaves", path: "auth/userpass/login/app",
			edit: auth(v2alpha1.VaultAuth{UserPass: &v2alpha1.VaultPasswordAuth{Username: "app", SecretRef: key("password")}}),
			want: map[string]any{"password": canary},
		},
		{
			why: "LDAP", path: "auth/ldap/login/app",
			edit: auth(v2alpha1.VaultAuth{LDAP: &v2alpha1.VaultPasswordAuth{Username: "app", SecretRef: key("password")}}),
			want: map[string]any{"password": canary},
		},
		{
			why: "a JSON web token", path: "auth/jwt/login",
			edit: auth(v2alpha1.VaultAuth{JWT: &v2alpha1.VaultJWTAuth{Role: "reader", SecretRef: ref("jwt")}}),
			want: map[string]any{"role": "reader", "jwt": canary},
		},
		{
			why: "a ServiceAccount's token as a JSON web token, to the default role", path: "auth/jwt/login",
			edit: auth(v2alpha1.VaultAuth{JWT: &v2alpha1.VaultJWTAuth{KubernetesServiceAccountToken: &v2alpha1.VaultServiceAccountToken{ServiceAccountRef: metav1alpha1.ServiceAccountSelector{Name: "app"}}}}),
			want: map[string]any{"jwt": canary + " of app for vault"},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			v.answer(c.path, http.StatusOK, `{"auth":{"client_token":"`+canary+`"}}`)

			s := with(v, c.edit)
			s.tokenFile = filepath.Join(t.TempDir(), "token")

			if err := os.WriteFile(s.tokenFile, []byte("the Pod's own\n"), 0o600); err != nil {
				t.Fatal(err)
			}

			s.open(t)

			got := v.last(t, c.path)
			if diff := cmp.Diff(c.want, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}

			if got.token != "" {
				t.Error("a token was sent to log in")
			}
		})
	}
}

func key(name string) metav1alpha1.SecretKeySelector {
	return metav1alpha1.SecretKeySelector{Name: name, Key: "value"}
}

func ref(name string) *metav1alpha1.SecretKeySelector {
	k := key(name)

	return &k
}

// auth makes the login another one.
func auth(method v2alpha1.VaultAuth) func(*setup) {
	return func(s *setup) { s.spec.Auth = method }
}

// Vault receives a signed request to AWS that identifies the signer; it does not
// contain the secret key.
func TestLoginByIAM(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	v.answer("auth/aws/login", http.StatusOK, `{"auth":{"client_token":"`+canary+`"}}`)
	with(v, auth(v2alpha1.VaultAuth{IAM: &v2alpha1.VaultIAMAuth{
		VaultRole: "reader", Region: "eu-central-1", VaultAWSIAMServerID: "vault.example.com",
		SecretRef: &v2alpha1.VaultAWSKeys{AccessKeyIDSecretRef: key("id"), SecretAccessKeySecretRef: key("key"), SessionTokenSecretRef: ref("session")},
	}}), func(s *setup) {
		s.references.secret = func(ref metav1alpha1.SecretKeySelector) ([]byte, error) { return []byte("aws-" + ref.Name + "\n"), nil }
	}).open(t)

	body := v.last(t, "auth/aws/login").body

	decoded := func(field string) string {
		text, _ := body[field].(string)

		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatalf("%s: %v", field, err)
		}

		return string(plain)
	}

	if got := decoded("iam_request_url"); got != "https://sts.eu-central-1.amazonaws.com/" {
		t.Errorf("the request goes to %s", got)
	}

	if got := decoded("iam_request_body"); got != "Action=GetCallerIdentity&Version=2011-06-15" {
		t.Errorf("the request asks %s", got)
	}

	var headers http.Header
	if err := json.Unmarshal([]byte(decoded("iam_request_headers")), &headers); err != nil {
		t.Fatal(err)
	}

	signed := headers.Get("Authorization")
	if !strings.Contains(signed, "Credential=aws-id/") || !strings.Contains(signed, "/eu-central-1/sts/aws4_request") || !strings.Contains(signed, "x-vault-aws-iam-server-id") {
		t.Errorf("the signature is %s", signed)
	}

	if headers.Get("X-Vault-Aws-Iam-Server-Id") != "vault.example.com" || headers.Get("X-Amz-Security-Token") != "aws-session" {
		t.Errorf("headers: %v", headers)
	}

	if strings.Contains(fmt.Sprint(headers, body), "aws-key") {
		t.Error("the secret access key was sent")
	}
}

// Vault can verify the token with the account's public key, and its audience is
// Vault only.
func TestLoginByGCP(t *testing.T) {
	t.Parallel()

	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	file, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "app@project.iam.gserviceaccount.com", "private_key_id": "k1",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}

	v := newVault(t)
	v.answer("auth/gcp/login", http.StatusOK, `{"auth":{"client_token":"`+canary+`"}}`)
	method := auth(v2alpha1.VaultAuth{GCP: &v2alpha1.VaultGCPAuth{Role: "reader", SecretRef: &v2alpha1.VaultGCPKey{SecretAccessKeySecretRef: key("gcp")}}})

	with(v, method, func(s *setup) {
		s.references.secret = func(metav1alpha1.SecretKeySelector) ([]byte, error) { return file, nil }
	}).open(t)

	text, _ := v.last(t, "auth/gcp/login").body["jwt"].(string)

	token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}

	var claims jwt.Claims
	if err := token.Claims(&private.PublicKey, &claims); err != nil {
		t.Fatal(err)
	}

	if claims.Subject != "app@project.iam.gserviceaccount.com" || !claims.Audience.Contains("vault/reader") || time.Until(claims.Expiry.Time()) > 15*time.Minute || token.Headers[0].KeyID != "k1" {
		t.Errorf("claims %+v, header %+v", claims, token.Headers)
	}

	for why, text := range map[string]string{
		"no JSON": canary, "no key": `{"client_email":"a"}`, "no PEM": `{"client_email":"a","private_key":"` + canary + `"}`,
		"no PKCS #8": `{"client_email":"a","private_key":"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}`,
	} {
		_, err := with(v, method, func(s *setup) {
			s.references.secret = func(metav1alpha1.SecretKeySelector) ([]byte, error) { return []byte(text), nil }
		}).try(t)
		if got := errorOf(t, err); got.Code != codes.FailedPrecondition || !strings.Contains(got.Message, "spec.auth.gcp.secretRef") {
			t.Errorf("%s: %v", why, got)
		}
	}
}

// Logins cost Vault more than reads: a thousand stores of one identity are one.
func TestStoresShareALogin(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	first := with(v)
	one := first.open(t)

	second := with(v, func(s *setup) { s.backend, s.spec.Path, s.retries = first.backend, "/secret/", 5 })
	two := second.open(t)

	if n := len(v.got(loginPath)); n != 1 {
		t.Errorf("two stores of one identity logged in %d times", n)
	}

	for why, edit := range map[string]func(*setup){
		"another ServiceAccount": func(s *setup) { s.spec.Auth.Kubernetes.ServiceAccountRef.Name = "other" },
		"another role":           func(s *setup) { s.spec.Auth.Kubernetes.Role = "other" },
		"another namespace":      func(s *setup) { s.spec.Namespace = "other" },
		"another limit":          func(s *setup) { limit := int32(7); s.spec.RequestsPerSecond = &limit },
	} {
		before := len(v.got(loginPath))
		with(v, edit, func(s *setup) { s.backend = first.backend }).open(t)

		if len(v.got(loginPath)) != before+1 {
			t.Errorf("%s shares the login", why)
		}
	}

	if err := one.Close(t.Context()); err != nil || len(v.got(revokePath)) != 0 {
		t.Errorf("a login that another store uses was revoked (%v)", err)
	}

	reads(t, two, "after the other was closed")

	if err := two.Close(t.Context()); err != nil || len(v.got(revokePath)) != 1 {
		t.Errorf("the last store revoked %d logins (%v)", len(v.got(revokePath)), err)
	}
}

// What Vault no longer accepts is not shared with stores that come later.
func TestARefusedLoginIsNotShared(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	s := with(v)
	old := s.open(t)

	v.refuse(appPath)
	v.refuse(lookupPath)

	if got := errorOf(t, read(t, old).Err); got.Code != codes.Unauthenticated {
		t.Fatalf("a read with an ended login: %v", got)
	}

	s.open(t)

	if n := len(v.got(loginPath)); n != 2 {
		t.Errorf("%d logins, want a second one", n)
	}
}

// A client certificate is sent only if the config has one.
func TestClientCertificate(t *testing.T) {
	t.Parallel()

	pair := selfSigned(t)
	shown := make(chan int, 10)

	v := newVault(t, func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert })
	v.handle("auth/cert/login", func(w http.ResponseWriter, r *http.Request) {
		shown <- len(r.TLS.PeerCertificates)

		fmt.Fprintf(w, `{"auth":{"client_token":%q}}`, canary)
	})
	v.handle(loginPath, func(w http.ResponseWriter, r *http.Request) {
		shown <- len(r.TLS.PeerCertificates)

		fmt.Fprintf(w, `{"auth":{"client_token":%q}}`, canary)
	})

	secrets := func(s *setup) {
		s.references.secret = func(ref metav1alpha1.SecretKeySelector) ([]byte, error) { return pair[ref.Name], nil }
	}

	for _, c := range []struct {
		why  string
		edit func(*setup)
		want int
	}{
		{"the auth method's", auth(v2alpha1.VaultAuth{Cert: &v2alpha1.VaultCertAuth{VaultRole: "web", ClientCert: key("crt"), SecretRef: key("key")}}), 1},
		{"that of spec.tls", func(s *setup) {
			s.spec.TLS = &v2alpha1.VaultClientTLS{CertSecretRef: key("crt"), KeySecretRef: key("key")}
		}, 1},
		{"none", func(*setup) {}, 0},
	} {
		with(v, c.edit, secrets).open(t)

		if got := <-shown; got != c.want {
			t.Errorf("%s: %d certificates shown, not %d", c.why, got, c.want)
		}
	}

	if got := v.last(t, "auth/cert/login").body["name"]; got != "web" {
		t.Errorf("the certificate's role is %v", got)
	}

	_, err := with(v, auth(v2alpha1.VaultAuth{Cert: &v2alpha1.VaultCertAuth{ClientCert: key("crt"), SecretRef: key("crt")}}), secrets).try(t)
	if got := errorOf(t, err); !strings.Contains(got.Message, "spec.auth.cert") {
		t.Errorf("a certificate without its key: %v", got)
	}
}

// selfSigned returns a certificate and its key, in PEM.
func selfSigned(t *testing.T) map[string][]byte {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}

	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}

	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	return map[string][]byte{
		"crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		"key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	got := make(chan http.Header, 1)
	v.handle(appPath, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header

		fmt.Fprint(w, `{"data":{"data":{"a":"1"},"metadata":{"version":3}}}`)
	})
	reads(t, with(v, func(s *setup) {
		s.spec.Headers, s.spec.ForwardInconsistent, s.spec.ReadYourWrites = map[string]string{"X-Proxy": "yes"}, true, true
	}).open(t), "with headers")

	if headers := <-got; headers.Get("X-Proxy") != "yes" || headers.Get("X-Vault-Inconsistent") != "forward-active-node" {
		t.Errorf("headers: %v", headers)
	}

	_, err := with(v, func(s *setup) { s.spec.Headers = map[string]string{"x-vault-token": "mine"} }).try(t)
	if got := errorOf(t, err); !strings.Contains(got.Message, "spec.headers") {
		t.Errorf("a token among the headers: %v", got)
	}
}

func TestTokenIsRenewedAtTwoThirds(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	s := with(v)
	store := s.open(t)

	reads(t, store, "at once")
	s.clock.pass(59 * time.Second)
	reads(t, store, "a second before two thirds of 90 s")

	if len(v.got(renewPath)) != 0 || len(v.got(loginPath)) != 1 {
		t.Fatal("the token was renewed before its time")
	}

	s.clock.pass(time.Second)
	reads(t, store, "at two thirds")
	reads(t, store, "once more")

	if n := len(v.got(renewPath)); n != 1 {
		t.Errorf("%d renewals, not 1", n)
	}

	if got := v.last(t, renewPath); got.token != canary+"-1" {
		t.Error("another token was renewed")
	}

	s.clock.pass(59 * time.Second)
	reads(t, store, "the renewal gave it a new life")

	if len(v.got(renewPath)) != 1 || len(v.got(loginPath)) != 1 {
		t.Error("the renewed token was not used to its two thirds")
	}
}

// Where renewing does not help, another login does.
func TestLogsInAgain(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why      string
		edit     func(*vault)
		renewals int
	}{
		{why: "the renewal is refused", edit: func(v *vault) { v.refuse(renewPath) }, renewals: 1},
		{why: "Vault renews and answers no token", edit: func(v *vault) { v.answer(renewPath, http.StatusOK, `{"data":{}}`) }, renewals: 1},
		{why: "the token cannot be renewed at all", edit: func(v *vault) { v.renewable = false }},
		{why: "the token comes to its greatest age: each renewal would be shorter than the one before", edit: func(v *vault) { v.renewed = 44 }, renewals: 1},
		{why: "the token has come to its greatest age: 0 s left are not no end", edit: func(v *vault) { v.renewed = 0 }, renewals: 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			c.edit(v)

			s := with(v)
			store := s.open(t)

			s.clock.pass(time.Minute)
			reads(t, store, "at two thirds")

			if got := v.last(t, appPath); got.token != canary+"-2" {
				t.Error("the read was not by the new login")
			}

			if got := v.last(t, loginPath); got.token != "" {
				t.Error("the old token was sent to log in")
			}

			if renewals, logins := len(v.got(renewPath)), len(v.got(loginPath)); renewals != c.renewals || logins != 2 {
				t.Errorf("%d renewals and %d logins", renewals, logins)
			}
		})
	}

	t.Run("the token has expired, and is not renewed first", func(t *testing.T) {
		t.Parallel()

		v := newVault(t)
		s := with(v)
		store := s.open(t)

		s.clock.pass(90 * time.Second)
		reads(t, store, "after its end")

		if len(v.got(renewPath)) != 0 || len(v.got(loginPath)) != 2 {
			t.Error("an expired token cannot be renewed")
		}
	})
}

func TestATokenWithoutAnEndIsKept(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	v.lease = 0
	s := with(v)
	store := s.open(t)

	s.clock.pass(1000 * time.Hour)
	reads(t, store, "much later")

	if len(v.got(renewPath)) != 0 || len(v.got(loginPath)) != 1 {
		t.Error("a token without an end was renewed or replaced")
	}
}

// A Vault that is away for a moment must not cost a login that still holds.
func TestKeepsTheTokenWhileVaultIsAway(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	s := with(v)
	store := s.open(t)

	v.answer(renewPath, http.StatusServiceUnavailable, `{"errors":["Vault is sealed"]}`)
	v.answer(loginPath, http.StatusServiceUnavailable, `{"errors":["Vault is sealed"]}`)
	s.clock.pass(time.Minute)
	reads(t, store, "with the old token")

	tries := len(v.got(loginPath))

	s.clock.pass(lookupPause - time.Second)
	reads(t, store, "with the old token")

	if n := len(v.got(loginPath)); n != tries {
		t.Errorf("%d attempts within ten seconds", n-tries)
	}

	s.clock.pass(time.Second)
	reads(t, store, "with the old token")

	if n := len(v.got(loginPath)); n != tries+1 {
		t.Errorf("after ten seconds %d attempts, not one", n-tries)
	}

	s.clock.pass(20 * time.Second)

	got := errorOf(t, read(t, store).Err)
	if got.Code != codes.Unavailable || !got.StoreScope || !strings.Contains(got.Message, "Vault is sealed") {
		t.Errorf("after the token's end: %+v", got)
	}

	v.handle(loginPath, nil)
	reads(t, store, "when Vault is back")
}

// Vault answers 403 both to an expired token and to a token without the permission
// to read.
func TestRefusalsAreDistinguished(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why    string
		lookup func(*vault)
		code   codes.Code
	}{
		{why: "the token is valid: the permission is missing", lookup: func(*vault) {}, code: codes.PermissionDenied},
		{why: "the token has expired", lookup: func(v *vault) { v.refuse(lookupPath) }, code: codes.Unauthenticated},
		{why: "Vault is sealed: that proves nothing against the token", lookup: func(v *vault) { v.answer(lookupPath, http.StatusServiceUnavailable, `{"errors":[]}`) }, code: codes.PermissionDenied},
		{why: "Vault throttles requests: likewise, and a new login would be one more request", lookup: func(v *vault) { v.answer(lookupPath, http.StatusTooManyRequests, `{"errors":[]}`) }, code: codes.PermissionDenied},
		{why: "another server answers", lookup: func(v *vault) { v.answer(lookupPath, http.StatusNotFound, `page`) }, code: codes.PermissionDenied},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			s := with(v)
			store := s.open(t)
			v.refuse(appPath)
			c.lookup(v)

			for range 3 {
				if got := errorOf(t, read(t, store).Err); got.Code != c.code {
					t.Errorf("%v: %s", got.Code, got.Message)
				}
			}

			if n := len(v.got(lookupPath)); n != 1 {
				t.Errorf("three refusals asked %d times about the token", n)
			}

			s.clock.pass(lookupPause)

			_ = read(t, store)
			_ = read(t, store)

			if n := len(v.got(lookupPath)); n != 2 {
				t.Errorf("ten seconds later it was asked %d times in all, not 2", n)
			}
		})
	}

	t.Run("what is known of a token says nothing of the next", func(t *testing.T) {
		t.Parallel()

		v := newVault(t)
		v.renewable = false
		s := with(v)
		store := s.open(t)
		s.clock.pass(59 * time.Second)
		v.refuse(appPath)
		v.refuse(lookupPath)

		if got := errorOf(t, read(t, store).Err); got.Code != codes.Unauthenticated {
			t.Fatalf("%v: %s", got.Code, got.Message)
		}

		v.handle(lookupPath, nil)
		s.clock.pass(time.Second) // Two thirds: the next read logs in again.

		if got := errorOf(t, read(t, store).Err); got.Code != codes.PermissionDenied {
			t.Errorf("%v: %s", got.Code, got.Message)
		}
	})

	t.Run("a caller that goes away has found nothing out", func(t *testing.T) {
		t.Parallel()

		v := newVault(t)
		store := with(v).open(t)
		v.refuse(appPath)

		ctx, cancel := context.WithCancel(t.Context())
		v.handle(lookupPath, func(w http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
			w.WriteHeader(http.StatusForbidden)
		})

		_ = store.Read(ctx, []provider.Read{{Key: "app"}})

		v.refuse(lookupPath)

		if got := errorOf(t, read(t, store).Err); got.Code != codes.Unauthenticated {
			t.Errorf("the next caller got %v: %s", got.Code, got.Message)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why     string
		edit    func(*setup)
		vault   func(*vault)
		revokes int
		err     string
	}{
		{why: "the store's own login is revoked: no other store uses its token", edit: func(*setup) {}, vault: func(*vault) {}, revokes: 1},
		{why: "a token of the config may be shared", edit: token, vault: func(*vault) {}},
		{why: "a login that cannot be revoked is reported", edit: func(*setup) {}, vault: func(v *vault) { v.refuse(revokePath) }, revokes: 1, err: "cannot revoke the login"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			c.vault(v)

			store := with(v, c.edit).open(t)
			reads(t, store, "before")

			err := store.Close(t.Context())
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(errorOf(t, err).Message, c.err) {
				t.Errorf("closing: %v", err)
			}

			if n := len(v.got(revokePath)); n != c.revokes {
				t.Errorf("%d revocations, not %d", n, c.revokes)
			}

			if c.revokes > 0 && v.last(t, revokePath).token != canary+"-1" {
				t.Error("another token was revoked")
			}
		})
	}
}

// The token belongs to the namespace of the login, the secrets to the engine's.
func TestNamespaces(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why               string
		namespace, auth   string
		wantRead, wantOwn string
	}{
		{why: "none: the header is not sent"},
		{why: "the engine's is that of the login", namespace: "team", wantRead: "team", wantOwn: "team"},
		{why: "the login may use another", namespace: "team/a", auth: "team", wantRead: "team/a", wantOwn: "team"},
		{why: "only the login's", auth: "team", wantOwn: "team"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			s := with(v, func(s *setup) { s.spec.Namespace, s.spec.Auth.Namespace = c.namespace, c.auth })
			store := s.open(t)

			s.clock.pass(time.Minute)
			reads(t, store, "with a renewed login")

			if _, err := store.Validate(t.Context()); err != nil {
				t.Error(err)
			}

			if err := store.Close(t.Context()); err != nil {
				t.Error(err)
			}

			for path, want := range map[string]string{appPath: c.wantRead, loginPath: c.wantOwn, renewPath: c.wantOwn, lookupPath: c.wantOwn, revokePath: c.wantOwn} {
				if got := v.last(t, path).namespace; got != want {
					t.Errorf("%s came for namespace %q, not %q", path, got, want)
				}
			}
		})
	}
}

// What keeps a login from being made, and what the operator makes of it.
func TestLoginFails(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why    string
		edit   func(*setup)
		vault  func(*vault)
		code   codes.Code
		reason string
		want   string
	}{
		{
			why: "no method", edit: func(s *setup) { s.spec.Auth = v2alpha1.VaultAuth{} },
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "set one of tokenSecretRef",
		},
		{
			why:  "the provider Pod's own token is not sent unless that is allowed: the tenant chooses the server and would receive it",
			edit: func(s *setup) { s.spec.Auth.Kubernetes.ServiceAccountRef = nil },
			code: codes.FailedPrecondition, reason: pb.ReasonReferenceDenied, want: "--own-identity-namespace=ns",
		},
		{
			why:  "a token's Secret is missing: the resolver's error is returned unchanged",
			edit: both(token, func(s *setup) { s.references.secret = missingSecret }),
			code: codes.FailedPrecondition, reason: pb.ReasonReferenceNotFound, want: "it does not exist",
		},
		{
			why: "a ServiceAccount token's Secret is missing: likewise",
			edit: func(s *setup) {
				s.spec.Auth.Kubernetes.ServiceAccountRef, s.spec.Auth.Kubernetes.SecretRef = nil, &metav1alpha1.SecretKeySelector{Name: "jwt", Key: "token"}
				s.references.secret = missingSecret
			},
			code: codes.FailedPrecondition, reason: pb.ReasonReferenceNotFound, want: "it does not exist",
		},
		{
			why: "a ServiceAccount is missing: likewise",
			edit: func(s *setup) {
				s.references.account = func(metav1alpha1.ServiceAccountSelector, []string) (string, error) {
					return "", provider.InvalidConfig("it does not exist")
				}
			},
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "it does not exist",
		},
		{
			why: "an empty token",
			edit: both(token, func(s *setup) {
				s.references.secret = func(metav1alpha1.SecretKeySelector) ([]byte, error) { return []byte(" \n"), nil }
			}),
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: `spec.auth.tokenSecretRef: key "token" of Secret "vault" is empty`,
		},
		{
			why: "a token with another line behind it",
			edit: both(token, func(s *setup) {
				s.references.secret = func(metav1alpha1.SecretKeySelector) ([]byte, error) { return []byte(canary + "\nX: y"), nil }
			}),
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "is no token",
		},
		{
			why: "a refused login is one of the store", vault: func(v *vault) { v.refuse(loginPath) },
			code: codes.Unauthenticated, reason: pb.ReasonUnauthenticated, want: `cannot log in to role "reader" at auth/kubernetes: Vault refuses`,
		},
		{
			why: "an unknown role, as Vault answers it", vault: func(v *vault) {
				v.answer(loginPath, http.StatusBadRequest, `{"errors":["invalid role name \"reader\""]}`)
			},
			code: codes.Unauthenticated, reason: pb.ReasonUnauthenticated, want: `invalid role name "reader"`,
		},
		{
			why: "a method that is not mounted is no missing secret: targets would be deleted for it", edit: func(s *setup) { s.spec.Auth.Kubernetes.MountPath = "none" },
			vault: func(v *vault) {
				v.answer("auth/none/login", http.StatusNotFound, `{"errors":["no handler for route"]}`)
			},
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "no handler for route",
		},
		{
			why: "no answer of a token", vault: func(v *vault) { v.answer(loginPath, http.StatusOK, `{"data":{}}`) },
			code: codes.Unavailable, reason: pb.ReasonUnavailable, want: "Vault answered no token",
		},
		{
			why: "a server that echoes what it was sent", vault: func(v *vault) { v.answer(loginPath, http.StatusForbidden, `you sent `+canary) },
			code: codes.Unauthenticated, reason: pb.ReasonUnauthenticated, want: "Vault refuses: Forbidden",
		},
		{
			why: "a server with an untrusted certificate", edit: func(s *setup) { s.spec.CABundle = nil },
			code: codes.Unavailable, reason: pb.ReasonUnavailable, want: "its certificate is of an unknown authority: set spec.caBundle",
		},
		{
			why: "no listener", vault: func(v *vault) { v.Listener.Close() },
			code: codes.Unavailable, reason: pb.ReasonUnavailable, want: "cannot log in to role \"reader\" at auth/kubernetes: Vault does not answer: connection refused",
		},
		{
			why: "a bundle that is none", edit: func(s *setup) { s.spec.CABundle = []byte("x") },
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "spec.caBundle holds no PEM certificate",
		},
		{
			why: "a referenced bundle that is none", edit: func(s *setup) {
				s.spec.CABundle, s.spec.CAProvider = nil, &metav1alpha1.CASource{}
				s.references.bundle = func(metav1alpha1.CASource) ([]byte, error) { return nil, nil }
			},
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "spec.caProvider holds no PEM certificate",
		},
		{
			why: "a referenced bundle that is missing", edit: func(s *setup) {
				s.spec.CABundle, s.spec.CAProvider = nil, &metav1alpha1.CASource{}
				s.references.bundle = func(metav1alpha1.CASource) ([]byte, error) { return nil, provider.InvalidConfig("no such ConfigMap") }
			},
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "no such ConfigMap",
		},
		{
			why: "a server that is no URL", edit: func(s *setup) { s.spec.Server = "https://a b" },
			code: codes.FailedPrecondition, reason: pb.ReasonInvalidConfig, want: "spec.server",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			if c.vault != nil {
				c.vault(v)
			}

			s := with(v)
			if c.edit != nil {
				c.edit(s)
			}

			_, err := s.try(t)

			got := errorOf(t, err)
			if got.Code != c.code || got.Reason != c.reason || !strings.Contains(got.Message, c.want) {
				t.Errorf("%v %s: %s", got.Code, got.Reason, got.Message)
			}

			if !got.StoreScope {
				t.Error("no read works without a login: the error is the store's")
			}
		})
	}

	if got := provider.AsError(loginError("log in", context.DeadlineExceeded)); got.Code != codes.DeadlineExceeded || !got.StoreScope {
		t.Errorf("a login that takes too long concerns the store: %+v", got)
	}
}

func both(edits ...func(*setup)) func(*setup) {
	return func(s *setup) {
		for _, edit := range edits {
			edit(s)
		}
	}
}

func missingSecret(metav1alpha1.SecretKeySelector) ([]byte, error) {
	e := provider.InvalidConfig("it does not exist")
	e.Reason = pb.ReasonReferenceNotFound

	return nil, e
}

// A renewed login fails like the first one: in particular it never looks like a
// missing secret.
func TestALaterLoginFails(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	s := with(v)
	store := s.open(t)

	v.answer(loginPath, http.StatusNotFound, `{"errors":["no handler for route"]}`)
	s.clock.pass(2 * time.Minute)

	if got := errorOf(t, read(t, store).Err); got.Code != codes.FailedPrecondition {
		t.Errorf("%v: %s", got.Code, got.Message)
	}
}

func TestConcurrentReadsShareOneLogin(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	s := with(v)
	store := s.open(t)

	s.clock.pass(2 * time.Minute)

	var wait sync.WaitGroup

	for range 10 {
		wait.Go(func() {
			if result := store.Read(t.Context(), []provider.Read{{Key: "app", Property: "a"}})[0]; result.Err != nil {
				t.Error(result.Err)
			}
		})
	}

	wait.Wait()

	if n := len(v.got(loginPath)); n != 2 {
		t.Errorf("%d logins, not 2", n)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why   string
		vault func(*vault)
		code  codes.Code
		want  string
	}{
		{why: "the token holds", vault: func(*vault) {}},
		{why: "the token has expired", vault: func(v *vault) { v.refuse(lookupPath) }, code: codes.Unauthenticated, want: "cannot use the token: Vault refuses: 2 errors occurred"},
		{why: "Vault is sealed: that is no verdict", vault: func(v *vault) { v.answer(lookupPath, http.StatusServiceUnavailable, `{"errors":["Vault is sealed"]}`) }, code: codes.Unavailable, want: "Vault is sealed"},
		{why: "Vault throttles requests: nor is that", vault: func(v *vault) { v.answer(lookupPath, http.StatusTooManyRequests, `{"errors":["quota"]}`) }, code: codes.ResourceExhausted, want: "quota"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			store := with(v, token).open(t)
			c.vault(v)

			validation, err := store.Validate(t.Context())
			if c.code != codes.OK {
				if got := errorOf(t, err); got.Code != c.code || !strings.Contains(got.Message, c.want) {
					t.Errorf("%v: %s", got.Code, got.Message)
				}

				return
			}

			if diff := cmp.Diff(provider.Validation{}, validation); err != nil || diff != "" {
				t.Errorf("%v, validation (-want +got):\n%s", err, diff)
			}
		})
	}
}

// google is the part of Google Cloud that exchanges tokens and signs.
type google struct {
	*httptest.Server

	key *rsa.PrivateKey
	// refuse answers a path with a status; asked is what a path was asked.
	refuse map[string]int

	mu    sync.Mutex
	asked map[string]map[string]any
}

const (
	googleAccount = "/v1/projects/-/serviceAccounts/app@project.iam.gserviceaccount.com"
	googleAccess  = googleAccount + ":generateAccessToken"
	googleSign    = googleAccount + ":signJwt"
	googleSTS     = "/v1/token"
)

func newGoogle(t *testing.T) *google {
	t.Helper()

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	g := &google{key: key, refuse: map[string]int{}, asked: map[string]map[string]any{}}
	g.Server = httptest.NewTLSServer(http.HandlerFunc(g.answer))
	t.Cleanup(g.Close)

	return g
}

func (g *google) answer(w http.ResponseWriter, r *http.Request) {
	asked := map[string]any{"host": r.Host, "token": r.Header.Get("Authorization")}

	if r.URL.Path == googleSTS {
		_ = r.ParseForm()
		for name, values := range r.PostForm {
			asked[name] = values[0]
		}
	} else {
		_ = json.NewDecoder(r.Body).Decode(&asked)
	}

	g.mu.Lock()
	g.asked[r.URL.Path] = asked
	g.mu.Unlock()

	if status := g.refuse[r.URL.Path]; status != 0 {
		http.Error(w, canary, status)

		return
	}

	switch r.URL.Path {
	case googleSTS:
		fmt.Fprint(w, `{"access_token":"pool-`+canary+`","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`)
	case googleAccess:
		fmt.Fprintf(w, `{"accessToken":"account-%s","expireTime":%q}`, canary, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	case googleSign:
		payload, _ := asked["payload"].(string)

		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: g.key}, nil)
		if err != nil {
			panic(err)
		}

		signed, err := signer.Sign([]byte(payload))
		if err != nil {
			panic(err)
		}

		text, _ := signed.CompactSerialize()
		fmt.Fprintf(w, `{"keyId":"k1","signedJwt":%q}`, text)
	default:
		http.NotFound(w, r)
	}
}

// way connects to it for every host.
func (g *google) way(t *testing.T) http.RoundTripper {
	t.Helper()

	roots := x509.NewCertPool()
	roots.AddCert(g.Certificate())

	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, g.Listener.Addr().String())
		},
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: "example.com"},
	}
	t.Cleanup(transport.CloseIdleConnections)

	return transport
}

func workloadIdentity(edit ...func(*v2alpha1.VaultGCPWorkloadIdentity)) func(*setup) {
	identity := &v2alpha1.VaultGCPWorkloadIdentity{
		ServiceAccountRef:   metav1alpha1.ServiceAccountSelector{Name: "app"},
		ServiceAccountEmail: "app@project.iam.gserviceaccount.com",
		Cluster:             &v2alpha1.VaultGKECluster{ProjectID: "project", Location: "europe-west3", Name: "main"},
	}
	for _, e := range edit {
		e(identity)
	}

	return auth(v2alpha1.VaultAuth{GCP: &v2alpha1.VaultGCPAuth{Role: "reader", WorkloadIdentity: identity}})
}

// A ServiceAccount becomes the service account that trusts it, without a key.
func TestLoginByWorkloadIdentity(t *testing.T) {
	t.Parallel()

	const pool = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k"

	for _, c := range []struct {
		why, audience, token string
		edit                 func(*v2alpha1.VaultGCPWorkloadIdentity)
	}{
		{
			why:      "a cluster of Google Kubernetes Engine",
			audience: "identitynamespace:project.svc.id.goog:https://container.googleapis.com/v1/projects/project/locations/europe-west3/clusters/main",
			token:    canary + " of app for project.svc.id.goog", edit: func(*v2alpha1.VaultGCPWorkloadIdentity) {},
		},
		{
			why: "any cluster that a pool trusts", audience: pool, token: canary + " of app for https:" + pool,
			edit: func(i *v2alpha1.VaultGCPWorkloadIdentity) { i.Cluster, i.Audience = nil, pool },
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v, g := newVault(t), newGoogle(t)
			v.answer("auth/gcp/login", http.StatusOK, `{"auth":{"client_token":"`+canary+`"}}`)
			with(v, workloadIdentity(c.edit), func(s *setup) { s.google = g.way(t) }).open(t)

			text, _ := v.last(t, "auth/gcp/login").body["jwt"].(string)

			token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.RS256})
			if err != nil {
				t.Fatal(err)
			}

			var claims jwt.Claims
			if err := token.Claims(&g.key.PublicKey, &claims); err != nil {
				t.Fatal(err)
			}

			if claims.Subject != "app@project.iam.gserviceaccount.com" || !claims.Audience.Contains("vault/reader") || time.Until(claims.Expiry.Time()) > 15*time.Minute {
				t.Errorf("claims %+v", claims)
			}

			exchange := g.asked[googleSTS]
			if exchange["audience"] != c.audience || exchange["subject_token"] != c.token || exchange["host"] != "sts.googleapis.com" {
				t.Errorf("the exchange is %v", exchange)
			}

			if token := g.asked[googleAccess]["token"]; token != "Bearer pool-"+canary {
				t.Errorf("the request for the access token is %v", token)
			}

			if sign := g.asked[googleSign]; sign["token"] != "Bearer account-"+canary || sign["host"] != "iamcredentials.googleapis.com" {
				t.Errorf("the request for the signature is %v", sign)
			}
		})
	}
}

// The error names the service that refuses and does not quote its answer.
func TestWorkloadIdentityThatFails(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why, path string
		status    int
		want      codes.Code
		text      string
	}{
		{"the pool does not know the cluster", googleSTS, http.StatusBadRequest, codes.Unauthenticated, "sts.googleapis.com answers 400"},
		{"the service account does not trust the ServiceAccount", googleAccess, http.StatusForbidden, codes.Unauthenticated, "iamcredentials.googleapis.com answers 403"},
		{"the service account may not sign", googleSign, http.StatusForbidden, codes.Unauthenticated, "itself sign"},
		{"too many signatures", googleSign, http.StatusTooManyRequests, codes.ResourceExhausted, "answers 429"},
		{"Google Cloud is down", googleSTS, http.StatusServiceUnavailable, codes.Unavailable, "answers 503"},
		{"an answer that is none", googleSTS, http.StatusNoContent, codes.Unavailable, "no token"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			v, g := newVault(t), newGoogle(t)
			g.refuse[c.path] = c.status

			_, err := with(v, workloadIdentity(), func(s *setup) { s.google = g.way(t) }).try(t)
			if got := errorOf(t, err); got.Code != c.want || !strings.Contains(got.Message, c.text) || strings.Contains(got.Message, canary) {
				t.Errorf("got %v", got)
			}
		})
	}

	t.Run("no answer", func(t *testing.T) {
		t.Parallel()

		v, g := newVault(t), newGoogle(t)
		way := g.way(t)
		g.Close()

		_, err := with(v, workloadIdentity(), func(s *setup) { s.google = way }).try(t)
		if got := errorOf(t, err); got.Code != codes.Unavailable || !strings.Contains(got.Message, "refuse") {
			t.Errorf("got %v", got)
		}
	})

	t.Run("a ServiceAccount that is not there", func(t *testing.T) {
		t.Parallel()

		_, err := with(newVault(t), workloadIdentity(), func(s *setup) {
			s.google = newGoogle(t).way(t)
			s.references.account = func(metav1alpha1.ServiceAccountSelector, []string) (string, error) {
				return "", provider.InvalidConfig("ServiceAccount %q is absent", "app")
			}
		}).try(t)
		if got := errorOf(t, err); got.Code != codes.FailedPrecondition || !strings.Contains(got.Message, "absent") {
			t.Errorf("got %v", got)
		}
	})
}
