package tests

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/e2e/vaultserver"
)

// request asks Vault as its administrator.
func ask(t *testing.T, method, path string, body map[string]any) map[string]any {
	t.Helper()

	answer, err := backend.Request(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}

	return answer
}

// Each login that a Vault without a cloud can offer, by the provider against
// the real thing. Those of AWS, Google Cloud and LDAP are tested in the
// provider's own package.
func TestVaultLogins(t *testing.T) {
	ns := newNamespace(t)
	write(t, "secret/"+ns+"/db", map[string]any{"password": "s3cret"})
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
			apply(t, ns, strings.NewReplacer("NAME", name, "SERVER", backend.Address(), "AUTH", strings.ReplaceAll(auth, "ROLE", roleID)).Replace(`
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
`))
			apply(t, ns, strings.ReplaceAll(simpleES(name, name), "key: db", "key: NS/db"))
			storeCondition(t, secretStore(ns, name), v2alpha1.ReasonValid)
			holds(t, ns, name, "password", "s3cret")
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
	for _, count := range backend.Requests() {
		n += count
	}

	return n
}

// vaultCredentials are tokens that Vault does not know, or no longer.
func vaultCredentials(t *testing.T) {
	t.Helper()

	ns := newNamespace(t)
	write(t, "secret/"+ns+"/db", map[string]any{"p1": "1", "p2": "2", "p3": "3", "p4": "4", "p5": "5"})

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
	vaultStore(t, ns, current)
	storeCondition(t, secretStore(ns, "store"), v2alpha1.ReasonValid)

	before, began := vaultCalls(), time.Now()

	gather(t, ns, ns+"/db")
	inSync(t, ns, began)
	t.Logf("the first sync of %d ExternalSecrets with 5 properties of one key: %d requests to Vault", crowd, vaultCalls()-before)

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
			credential{
				fail: c.fail, mend: fresh, calls: vaultCalls, budget: 120,
				texts: []string{"Vault", "Unauthenticated"}, secrets: []string{current, "wrong-token"},
			}.suffers(t, ns)
		})
	}
}

// A certificate logs in over a connection that it secures itself.
func TestVaultCertificateLogin(t *testing.T) {
	ns, authority := newNamespace(t), newIssuer(t)
	served := folder(t, authority.issue(t, "spiffe://corp/vault", time.Now().Add(time.Hour)))

	server, err := vaultserver.Start(t.Context(), vaultserver.Options{TLSCert: filepath.Join(served, "tls.crt"), TLSKey: filepath.Join(served, "tls.key")})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})

	if err := server.Write(t.Context(), "secret/db", map[string]any{"password": "by certificate"}); err != nil {
		t.Fatal(err)
	}

	for _, step := range []struct {
		path string
		body map[string]any
	}{
		{"sys/auth/cert", map[string]any{"type": "cert"}},
		{"sys/policies/acl/reader", map[string]any{"policy": `path "secret/data/*" { capabilities = ["read"] }`}},
		{"auth/cert/certs/web", map[string]any{"certificate": string(authority.bundle()), "allowed_uri_sans": "spiffe://corp/app", "token_policies": "reader"}},
	} {
		if _, err := server.Request(t.Context(), http.MethodPost, step.path, step.body); err != nil {
			t.Fatal(err)
		}
	}

	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "authorities"}, Data: map[string]string{"ca.crt": string(authority.bundle())}}
	if err := product.Client.Create(t.Context(), authorities); err != nil {
		t.Fatal(err)
	}

	tlsSecret(t, ns, "app", authority.issue(t, "spiffe://corp/app", time.Now().Add(time.Hour)))
	tlsSecret(t, ns, "stranger", authority.issue(t, "spiffe://corp/stranger", time.Now().Add(time.Hour)))

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

	apply(t, ns, config("app")+config("stranger")+simpleES("app", "app"))
	holds(t, ns, "app", "password", "by certificate")
	storeCondition(t, secretStore(ns, "stranger"), v2alpha1.ReasonInvalidProviderConfig, "cannot log in at auth/cert")
}

// Vault learns from AWS who has signed the login, and so whose it is.
func TestVaultAWSLogin(t *testing.T) {
	sts, ns := awsServer(t), newNamespace(t)
	write(t, "secret/"+ns+"/db", map[string]any{"password": "by identity"})
	awsCredentials(t, ns, awsKey)

	for _, step := range []struct {
		path string
		body map[string]any
	}{
		{"sys/policies/acl/" + ns, map[string]any{"policy": fmt.Sprintf(`path "secret/data/%s/*" { capabilities = ["read"] }`, ns)}},
		{"sys/auth/" + ns, map[string]any{"type": "aws"}},
		{"auth/" + ns + "/config/client", map[string]any{"sts_endpoint": sts.Address(), "sts_region": awsRegion, "iam_server_id_header_value": "vault.example.com"}},
		{"auth/" + ns + "/role/app", map[string]any{
			// That is who moto takes everybody for.
			"auth_type": "iam", "bound_iam_principal_arn": "arn:aws:iam::123456789012:user/moto", "resolve_aws_unique_ids": false, "token_policies": ns,
		}},
	} {
		ask(t, http.MethodPost, step.path, step.body)
	}

	for name, audience := range map[string]string{"app": "vault.example.com", "elsewhere": "another.example.com"} {
		apply(t, ns, strings.NewReplacer("NAME", name, "SERVER", backend.Address(), "REGION", awsRegion, "AUDIENCE", audience).Replace(`
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: NAME
spec:
  server: SERVER
  path: secret
  auth:
    iam:
      path: NS
      vaultRole: app
      region: REGION
      vaultAwsIamServerID: AUDIENCE
      secretRef:
        accessKeyIDSecretRef: {name: awssm-secret, key: access-key}
        secretAccessKeySecretRef: {name: awssm-secret, key: secret-access-key}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: NAME
spec:
  providerConfig:
    providerRef: {kind: Vault, name: NAME}
`))
	}

	apply(t, ns, strings.ReplaceAll(simpleES("app", "app"), "key: db", "key: NS/db"))
	storeCondition(t, secretStore(ns, "app"), v2alpha1.ReasonValid)
	holds(t, ns, "app", "password", "by identity")

	// A request that was signed for another server is of no use to this one.
	storeCondition(t, secretStore(ns, "elsewhere"), v2alpha1.ReasonInvalidProviderConfig, "cannot log in to role", "Vault refuses")
}
