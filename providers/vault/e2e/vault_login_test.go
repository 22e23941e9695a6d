package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/external-secrets/eso/testkit/motoserver"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/go-hclog"
	"github.com/jimlambrt/gldap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/issuer"
	"github.com/external-secrets/eso/testkit/suite"
	"github.com/external-secrets/eso/testkit/vaultserver"
)

// request asks Vault as its administrator.
func ask(t *testing.T, method, path string, body map[string]any) map[string]any {
	t.Helper()

	answer, err := product.Vault.Request(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}

	return answer
}

// Each login that a Vault can offer by itself, by the provider against the real
// thing.
func TestVaultLogins(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "s3cret"})
	ask(t, http.MethodPost, "sys/policies/acl/"+ns, map[string]any{"policy": fmt.Sprintf(`path "secret/data/%s/*" { capabilities = ["read"] }`, ns)})

	policies := map[string]any{"token_policies": []string{ns}, "token_ttl": "1m"}

	secret := func(name, value string) {
		t.Helper()

		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, StringData: map[string]string{"value": value}}
		if err := product.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	if err := product.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}); err != nil {
		t.Fatal(err)
	}

	for _, mount := range []string{"approle", "userpass", "jwt"} {
		ask(t, http.MethodPost, "sys/auth/"+ns+"-"+mount, map[string]any{"type": mount})
	}

	approle := "auth/" + ns + "-approle/role/app"
	ask(t, http.MethodPost, approle, policies)

	roleID := dig(t, ask(t, http.MethodGet, approle+"/role-id", nil), "role_id")
	secretID := dig(t, ask(t, http.MethodPost, approle+"/secret-id", nil), "secret_id")

	secret("role-id", roleID)
	secret("secret-id", secretID+"\n")

	user := map[string]any{"password": "pass word"}
	maps.Copy(user, policies)
	ask(t, http.MethodPost, "auth/"+ns+"-userpass/users/app", user)
	secret("password", "pass word\n")

	ask(t, http.MethodPost, "auth/"+ns+"-jwt/config", map[string]any{"jwt_validation_pubkeys": accountKeys(t)})

	role := map[string]any{"role_type": "jwt", "user_claim": "sub", "bound_audiences": []string{"vault"}, "bound_subject": "system:serviceaccount:" + ns + ":app"}
	maps.Copy(role, policies)
	ask(t, http.MethodPost, "auth/"+ns+"-jwt/role/app", role)

	for name, auth := range map[string]string{
		"approle":     `appRole: {path: NS-approle, roleId: ROLE, secretRef: {name: secret-id, key: value}}`,
		"approle-ref": `appRole: {path: NS-approle, roleRef: {name: role-id, key: value}, secretRef: {name: secret-id, key: value}}`,
		"userpass":    `userPass: {path: NS-userpass, username: app, secretRef: {name: password, key: value}}`,
		"jwt":         `jwt: {path: NS-jwt, role: app, kubernetesServiceAccountToken: {serviceAccountRef: {name: app}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			product.Apply(t, ns, vaultConfig(name, product.Vault.Address(), strings.ReplaceAll(auth, "ROLE", roleID)))
			product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES(name, name), "key: db", "key: NS/db"))
			product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonValid)
			product.Holds(t, ns, name, "password", "s3cret")
		})
	}
}

// dig gives a text of an answer's data.
func dig(t *testing.T, answer map[string]any, field string) string {
	t.Helper()

	data, _ := answer["data"].(map[string]any)

	text, ok := data[field].(string)
	if !ok {
		t.Fatalf("the answer has no data.%s", field)
	}

	return text
}

// accountKeys are the keys that sign ServiceAccounts' tokens, in PEM.
func accountKeys(t *testing.T) []string {
	t.Helper()

	raw, err := product.Clientset.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil {
		t.Fatal(err)
	}

	keys := make([]string, 0, len(set.Keys))

	for _, key := range set.Keys {
		der, err := x509.MarshalPKIXPublicKey(key.Key)
		if err != nil {
			t.Fatal(err)
		}

		keys = append(keys, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	}

	return keys
}

// vaultCalls counts the requests that came to Vault, but for the test's own.
func vaultCalls() int {
	n := 0
	for _, count := range product.Vault.Requests() {
		n += count
	}

	return n
}

// A crowd whose token Vault does not know, or no longer. It counts all requests to
// Vault, so nothing runs beside it.
func TestCredentialsThatExpire(t *testing.T) {
	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"p1": "1", "p2": "2", "p3": "3", "p4": "4", "p5": "5"})

	token := func(body map[string]any) string {
		t.Helper()

		auth, _ := ask(t, http.MethodPost, "auth/token/create", body)["auth"].(map[string]any)
		created, _ := auth["client_token"].(string)

		return created
	}

	set := func(value string) {
		if _, err := product.Kubectl(t.Context(), "", "-n", ns, "patch", "secret", "vault-token", "-p", `{"stringData":{"token":"`+value+`"}}`); err != nil {
			t.Fatal("cannot patch the token's Secret")
		}
	}

	root := map[string]any{"policies": []string{"root"}}
	current := token(root)
	product.VaultStore(t, ns, current)
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	before, began := vaultCalls(), time.Now()

	product.Crowd(t, ns, ns+"/db")
	product.CrowdSynced(t, ns, began)
	t.Logf("the first sync of %d ExternalSecrets with 5 properties of one key: %d requests to Vault", suite.CrowdSize, vaultCalls()-before)

	fresh := func() {
		current = token(root)
		set(current)
	}

	// replace puts another token in the Secret, and ends the one in use, which
	// would do for another minute.
	replace := func(value string) {
		old := current
		current = value
		set(value)
		ask(t, http.MethodPost, "auth/token/revoke", map[string]any{"token": old})
	}

	for _, c := range []struct {
		name string
		fail func()
	}{
		{"wrong", func() { replace("wrong-token") }},
		{"revoked", func() { ask(t, http.MethodPost, "auth/token/revoke", map[string]any{"token": current}) }},
		{"expired", func() {
			replace(token(map[string]any{"policies": []string{"root"}, "ttl": "3s", "explicit_max_ttl": "3s"}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			suite.Credential{
				Fail: c.fail, Restore: fresh, Calls: vaultCalls, Budget: 120,
				Texts: []string{"Vault", "Unauthenticated"}, Secrets: []string{current, "wrong-token"},
			}.Suffers(t, product, ns)
		})
	}
}

// setting is what Vault's administrator writes to a path.
type setting struct {
	path string
	body map[string]any
}

// vaultWith starts a Vault of the test's own, in which secret/db has a password
// that the policy reader lets read, with settings.
func vaultWith(t *testing.T, options vaultserver.Options, password string, settings []setting) *vaultserver.Server {
	t.Helper()

	server, err := vaultserver.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})

	if err := server.Write(t.Context(), "secret/db", map[string]any{"password": password}); err != nil {
		t.Fatal(err)
	}

	policy := setting{"sys/policies/acl/reader", map[string]any{"policy": `path "secret/data/*" { capabilities = ["read"] }`}}

	for _, step := range append([]setting{policy}, settings...) {
		if _, err := server.Request(t.Context(), http.MethodPost, step.path, step.body); err != nil {
			t.Fatal(err)
		}
	}

	return server
}

// A certificate logs in over a connection that it secures itself.
func TestVaultCertificateLogin(t *testing.T) {
	t.Parallel()

	ns, authority := product.Namespace(t), issuer.New(t)
	served := issuer.Folder(t, authority.Issue(t, "spiffe://corp/vault", time.Now().Add(time.Hour)))

	server := vaultWith(t, vaultserver.Options{TLSCert: filepath.Join(served, "tls.crt"), TLSKey: filepath.Join(served, "tls.key")}, "by certificate", []setting{
		{"sys/auth/cert", map[string]any{"type": "cert"}},
		{"auth/cert/certs/web", map[string]any{"certificate": string(authority.Bundle()), "allowed_uri_sans": "spiffe://corp/app", "token_policies": "reader"}},
	})

	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "authorities"}, Data: map[string]string{"ca.crt": string(authority.Bundle())}}
	if err := product.Client.Create(t.Context(), authorities); err != nil {
		t.Fatal(err)
	}

	product.TLSSecret(t, ns, "app", authority.Issue(t, "spiffe://corp/app", time.Now().Add(time.Hour)))
	product.TLSSecret(t, ns, "stranger", authority.Issue(t, "spiffe://corp/stranger", time.Now().Add(time.Hour)))

	config := func(name string) string {
		return strings.NewReplacer("NAME", name, "SERVER", server.SecuredAddress()).Replace(`---
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: NAME
spec:
  server: SERVER
  path: secret
  caProvider: {configMapRef: {name: authorities, key: ca.crt}}
  auth:
    cert:
      vaultRole: web
      clientCert: {name: NAME, key: tls.crt}
      secretRef: {name: NAME, key: tls.key}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: NAME
spec:
  providerConfig:
    providerRef: {kind: Vault, name: NAME}
`)
	}

	product.Apply(t, ns, config("app")+config("stranger")+suite.SimpleES("app", "app"))
	product.Holds(t, ns, "app", "password", "by certificate")
	product.StoreCondition(t, suite.SecretStore(ns, "stranger"), v2alpha1.ReasonInvalidProviderConfig, "cannot log in at auth/cert")
}

// Vault verifies with AWS which identity has signed the login.
func TestVaultAWSLogin(t *testing.T) {
	t.Parallel()

	if motoserver.Waived() {
		t.Skip(motoserver.WithoutEnv + " leaves moto out")
	}

	const awsRegion = "eu-central-1"

	sts, err := motoserver.Start(t.Context(), motoserver.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = sts.Stop() })

	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "by identity"})

	login := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "awssm-secret"},
		StringData: map[string]string{"access-key": "AKIAIOSFODNN7EXAMPLE", "secret-access-key": "secret-access-key-of-the-tests"},
	}
	if err := product.Client.Create(t.Context(), login); err != nil {
		t.Fatal(err)
	}

	for _, step := range []struct {
		path string
		body map[string]any
	}{
		{"sys/policies/acl/" + ns, map[string]any{"policy": fmt.Sprintf(`path "secret/data/%s/*" { capabilities = ["read"] }`, ns)}},
		{"sys/auth/" + ns, map[string]any{"type": "aws"}},
		{"auth/" + ns + "/config/client", map[string]any{"sts_endpoint": sts.Address(), "sts_region": awsRegion, "iam_server_id_header_value": "vault.example.com"}},
		{"auth/" + ns + "/role/app", map[string]any{
			// moto returns this identity for all callers.
			"auth_type": "iam", "bound_iam_principal_arn": "arn:aws:iam::123456789012:user/moto", "resolve_aws_unique_ids": false, "token_policies": ns,
		}},
	} {
		ask(t, http.MethodPost, step.path, step.body)
	}

	for name, audience := range map[string]string{"app": "vault.example.com", "elsewhere": "another.example.com"} {
		product.Apply(t, ns, vaultConfig(name, product.Vault.Address(), strings.NewReplacer("REGION", awsRegion, "AUDIENCE", audience).Replace(`iam:
      path: NS
      vaultRole: app
      region: REGION
      vaultAwsIamServerID: AUDIENCE
      secretRef:
        accessKeyIDSecretRef: {name: awssm-secret, key: access-key}
        secretAccessKeySecretRef: {name: awssm-secret, key: secret-access-key}`)))
	}

	product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("app", "app"), "key: db", "key: NS/db"))
	product.StoreCondition(t, suite.SecretStore(ns, "app"), v2alpha1.ReasonValid)
	product.Holds(t, ns, "app", "password", "by identity")

	// A request that was signed for another server is of no use to this one.
	product.StoreCondition(t, suite.SecretStore(ns, "elsewhere"), v2alpha1.ReasonInvalidProviderConfig, "cannot log in to role", "Vault refuses")
}

// directory is an LDAP server in which app has a password. It counts the binds
// that succeeded, and those that did not.
type directory struct {
	address        string
	password       string
	bound, refused atomic.Int32
}

func newDirectory(t *testing.T) *directory {
	t.Helper()

	d := &directory{password: "pass word"}

	// The library opens the port itself: another process may have taken it.
	var err error
	for range 5 {
		if err = d.start(t); err == nil {
			return d
		}
	}

	t.Fatalf("cannot start the LDAP server: %v", err)

	return nil
}

func (d *directory) start(t *testing.T) error {
	t.Helper()

	server, err := gldap.NewServer(gldap.WithLogger(hclog.NewNullLogger()), gldap.WithReadTimeout(10*time.Second))
	if err != nil {
		return err
	}

	routes, err := gldap.NewMux()
	if err != nil {
		return err
	}

	if err := errors.Join(routes.Bind(d.bind), routes.Search(d.search), server.Router(routes)); err != nil {
		return err
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	d.address = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}

	served := make(chan error, 1)
	go func() { served <- server.Run(d.address) }()

	for !server.Ready() {
		select {
		case err := <-served:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}

	// It also says so where it could not listen.
	select {
	case err := <-served:
		return err
	case <-time.After(100 * time.Millisecond):
	}

	t.Cleanup(func() {
		if err := errors.Join(server.Stop(), <-served); err != nil {
			t.Error(err)
		}
	})

	return nil
}

const appDN = "uid=app,ou=people,dc=corp"

func (d *directory) bind(w *gldap.ResponseWriter, r *gldap.Request) {
	response := r.NewBindResponse(gldap.WithResponseCode(gldap.ResultInvalidCredentials))
	defer func() { _ = w.Write(response) }()

	message, err := r.GetSimpleBindMessage()
	if err == nil && message.UserName == appDN && string(message.Password) == d.password {
		d.bound.Add(1)
		response.SetResultCode(gldap.ResultSuccess)

		return
	}

	d.refused.Add(1)
}

func (d *directory) search(w *gldap.ResponseWriter, r *gldap.Request) {
	done := r.NewSearchDoneResponse(gldap.WithResponseCode(gldap.ResultSuccess))
	defer func() { _ = w.Write(done) }()

	if message, err := r.GetSearchMessage(); err == nil && strings.HasSuffix(message.BaseDN, "ou=people,dc=corp") {
		_ = w.Write(r.NewSearchResponseEntry(appDN, gldap.WithAttributes(map[string][]string{"uid": {"app"}, "objectClass": {"person"}})))
	}
}

// Vault asks a directory whether the password is the user's.
func TestVaultLDAPLogin(t *testing.T) {
	t.Parallel()

	people, ns := newDirectory(t), product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "by directory"})

	for _, step := range []struct {
		path string
		body map[string]any
	}{
		{"sys/policies/acl/" + ns, map[string]any{"policy": fmt.Sprintf(`path "secret/data/%s/*" { capabilities = ["read"] }`, ns)}},
		{"sys/auth/" + ns, map[string]any{"type": "ldap"}},
		{"auth/" + ns + "/config", map[string]any{"url": "ldap://" + people.address, "userdn": "ou=people,dc=corp", "userattr": "uid", "token_policies": ns}},
	} {
		ask(t, http.MethodPost, step.path, step.body)
	}

	for name, password := range map[string]string{"app": people.password + "\n", "stranger": "guessed"} {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, StringData: map[string]string{"password": password}}
		if err := product.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}

		product.Apply(t, ns, vaultConfig(name, product.Vault.Address(), strings.ReplaceAll(`ldap: {path: NS, username: app, secretRef: {name: NAME, key: password}}`, "NAME", name)))
	}

	product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("app", "app"), "key: db", "key: NS/db"))
	product.StoreCondition(t, suite.SecretStore(ns, "app"), v2alpha1.ReasonValid)
	product.Holds(t, ns, "app", "password", "by directory")
	product.StoreCondition(t, suite.SecretStore(ns, "stranger"), v2alpha1.ReasonInvalidProviderConfig, "cannot log in at auth/"+ns)

	if bound, refused := people.bound.Load(), people.refused.Load(); bound == 0 || refused == 0 {
		t.Errorf("the directory knew %d and refused %d; Vault should have asked for both", bound, refused)
	}
}

// vaultConfig is a Vault and the SecretStore of its name.
func vaultConfig(name, server, auth string) string {
	return strings.NewReplacer("NAME", name, "SERVER", server, "AUTH", auth).Replace(`---
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: NAME
spec:
  server: SERVER
  path: secret
  auth:
    AUTH
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: NAME
spec:
  providerConfig:
    providerRef: {kind: Vault, name: NAME}
`)
}

const googleEmail = "app@project.iam.gserviceaccount.com"

// google is the part of Google Cloud that Vault asks for whose key has signed.
// It gives Vault itself a token.
func google(t *testing.T, certificate []byte) *httptest.Server {
	t.Helper()

	answers := map[string]any{
		"/token": map[string]any{"access_token": "of-vault", "token_type": "Bearer", "expires_in": 3600},
		"/service_accounts/v1/metadata/x509/" + googleEmail: map[string]string{"k1": string(certificate)},
		"/v1/projects/-/serviceAccounts/" + googleEmail: map[string]any{
			"name": "projects/project/serviceAccounts/" + googleEmail, "email": googleEmail, "projectId": "project", "uniqueId": "123",
		},
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)

			return
		}

		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)

	return server
}

// serviceAccount is a key of Google Cloud's, as it gives them to people, with
// its certificate.
func serviceAccount(t *testing.T, tokenURL string) (file, certificate []byte) {
	t.Helper()

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour)}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	file, err = json.Marshal(map[string]string{
		"type": "service_account", "client_email": googleEmail, "private_key_id": "k1", "token_uri": tokenURL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	})
	if err != nil {
		t.Fatal(err)
	}

	return file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Vault verifies with Google Cloud which account's key has signed the login.
func TestVaultGoogleCloudLogin(t *testing.T) {
	ns := product.Namespace(t)
	app, certificate := serviceAccount(t, "unused")
	stranger, _ := serviceAccount(t, "unused")
	cloud := google(t, certificate)

	// Vault's own identity at Google Cloud.
	own, _ := serviceAccount(t, cloud.URL+"/token")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(issuer.Folder(t, map[string][]byte{"own.json": own}), "own.json"))

	server := vaultWith(t, vaultserver.Options{}, "by service account", []setting{
		{"sys/auth/gcp", map[string]any{"type": "gcp"}},
		{"auth/gcp/config", map[string]any{"custom_endpoint": map[string]string{"api": cloud.URL, "iam": cloud.URL}}},
		{"auth/gcp/role/web", map[string]any{"type": "iam", "bound_service_accounts": googleEmail, "token_policies": "reader"}},
	})

	for name, key := range map[string][]byte{"app": app, "stranger": stranger} {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string][]byte{"key.json": key}}
		if err := product.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}

		product.Apply(t, ns, vaultConfig(name, server.Address(), `gcp: {role: web, secretRef: {secretAccessKeySecretRef: {name: `+name+`, key: key.json}}}`))
	}

	product.Apply(t, ns, suite.SimpleES("app", "app"))
	product.StoreCondition(t, suite.SecretStore(ns, "app"), v2alpha1.ReasonValid)
	product.Holds(t, ns, "app", "password", "by service account")

	// A key of the same name, and not the account's.
	product.StoreCondition(t, suite.SecretStore(ns, "stranger"), v2alpha1.ReasonInvalidProviderConfig, `cannot log in to role "web" at auth/gcp`)
}
