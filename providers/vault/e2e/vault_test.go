package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/issuer"
	"github.com/external-secrets/eso/testkit/suite"
)

func TestVaultTokenAndVersions(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "first", "n": 5432})
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "second", "n": 5432})
	product.WriteVault(t, "kv1/"+ns, map[string]any{"password": "<one&only>"})
	product.VaultStore(t, ns, product.Vault.RootToken())

	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "authorities"}, Data: map[string]string{"ca.crt": string(issuer.New(t).Bundle())}}
	if err := product.Client.Create(t.Context(), authorities); err != nil {
		t.Fatal(err)
	}

	product.Apply(t, ns, strings.ReplaceAll(`
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: kv1
spec:
  server: SERVER
  path: kv1
  version: v1
  caProvider: {configMapRef: {name: authorities, key: ca.crt}}
  auth:
    tokenSecretRef: {name: vault-token, key: token}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: kv1
spec:
  providerConfig:
    providerRef: {kind: Vault, name: kv1}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: app
spec:
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  dataFrom:
  - extract: {key: NS/db}
  - extract: {key: NS}
    sourceRef:
      storeRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: kv1}
    `+`
  data:
  - {secretKey: first, remoteRef: {key: NS/db, property: password, version: "1"}}
  - {secretKey: second, remoteRef: {key: secret/data/NS/db, property: password}}
  - secretKey: whole
    remoteRef: {key: NS}
    sourceRef:
      storeRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: kv1}
`, "SERVER", product.Vault.Address()))
	product.Synced(t, ns, "app")

	for key, value := range map[string]string{
		"n": "5432", "password": "<one&only>", "first": "first", "second": "second", "whole": `{"password":"<one&only>"}`,
	} {
		product.Holds(t, ns, "app", key, value)
	}
}

// The provider logs in to Vault with a token of the tenant's ServiceAccount,
// which Vault has the API server review.
func TestVaultKubernetesLogin(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "s3cret"})
	enableKubernetesAuth(t, ns)

	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}},
	} {
		if err := product.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	manifest := strings.ReplaceAll(`
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: backend
spec:
  server: SERVER
  path: secret
  auth:
    kubernetes:
      mountPath: NS
      role: ROLE
      serviceAccountRef: {name: app}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: store
spec:
  providerConfig:
    providerRef: {kind: Vault, name: backend}
`, "SERVER", product.Vault.Address())

	t.Run("an unknown role is reported in the store's condition", func(t *testing.T) {
		product.Apply(t, ns, strings.ReplaceAll(manifest, "ROLE", "absent"))
		product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonInvalidProviderConfig, `role "absent"`, "invalid role name")
	})

	t.Run("a role that fits the ServiceAccount reads", func(t *testing.T) {
		product.Apply(t, ns, strings.ReplaceAll(manifest, "ROLE", "reader")+suite.SimpleES("app", "store"))
		product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("app", "store"), "key: db", "key: NS/db"))
		product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)
		product.Holds(t, ns, "app", "password", "s3cret")
	})
}

// enableKubernetesAuth mounts the Kubernetes auth method under the namespace's
// name, with a role "reader" for the namespace's ServiceAccount "app".
func enableKubernetesAuth(t *testing.T, ns string) {
	t.Helper()

	ctx := t.Context()
	reviewer := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reviewer"}}

	for _, object := range []client.Object{reviewer, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reviewer-" + ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "reviewer"}},
	}} {
		if err := product.Client.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}

	token := &authenticationv1.TokenRequest{}
	if err := product.Client.SubResource("token").Create(ctx, reviewer, token); err != nil {
		t.Fatal(err)
	}

	config := product.ControlPlane.Config()

	for _, request := range []struct {
		path string
		body map[string]any
	}{
		{"sys/auth/" + ns, map[string]any{"type": "kubernetes"}},
		{"auth/" + ns + "/config", map[string]any{
			"kubernetes_host": config.Host, "kubernetes_ca_cert": string(config.CAData), "token_reviewer_jwt": token.Status.Token,
			"disable_local_ca_jwt": true,
		}},
		{"sys/policies/acl/" + ns, map[string]any{"policy": fmt.Sprintf(`path "secret/data/%s/*" { capabilities = ["read"] }`, ns)}},
		{"auth/" + ns + "/role/reader", map[string]any{
			"bound_service_account_names": []string{"app"}, "bound_service_account_namespaces": []string{ns},
			"token_policies": []string{ns}, "token_ttl": "1m", "audience": "vault",
		}},
	} {
		if _, err := product.Vault.Request(ctx, http.MethodPost, request.path, request.body); err != nil {
			t.Fatal(err)
		}
	}
}

// A token that ends is replaced as soon as its Secret holds another: the
// provider looks at the Secret again when Vault refuses the old one.
func TestVaultTokenThatIsReplaced(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "s3cret"})

	created, err := product.Vault.Request(t.Context(), http.MethodPost, "auth/token/create", map[string]any{"policies": []string{"root"}})
	if err != nil {
		t.Fatal(err)
	}

	auth, _ := created["auth"].(map[string]any)
	short, _ := auth["client_token"].(string)

	product.VaultStore(t, ns, short)

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "vault-token"}}
	setToken := func(token string) {
		t.Helper()

		if _, err := product.Kubectl(t.Context(), "", "-n", ns, "patch", "secret", secret.Name, "-p", `{"stringData":{"token":"`+token+`"}}`); err != nil {
			t.Fatal("cannot patch the token's Secret")
		}
	}

	product.Apply(t, ns, strings.NewReplacer("key: db", "key: NS/db", "refreshInterval: 1h", "refreshInterval: 1s").Replace(suite.SimpleES("app", "store")))
	product.Holds(t, ns, "app", "password", "s3cret")

	if _, err := product.Vault.Request(t.Context(), http.MethodPost, "auth/token/revoke", map[string]any{"token": short}); err != nil {
		t.Fatal(err)
	}

	message := product.Failing(t, ns, "app", "Vault", "Unauthenticated")
	if strings.Contains(message, short) {
		t.Error("the message holds the token")
	}

	setToken(product.Vault.RootToken())
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"password": "newer"})
	product.Holds(t, ns, "app", "password", "newer")
}
