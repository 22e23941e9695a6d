package functional

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"
)

// A ClusterSecretStore's credentials resolve where its scope says, and
// nowhere else.
func TestClusterSecretStoreScopes(t *testing.T) {
	t.Parallel()

	owner, tenant, stranger := product.Namespace(t), product.Namespace(t), product.Namespace(t)
	product.WriteVault(t, "secret/"+owner+"/db", map[string]any{"password": "s3cret"})
	product.VaultStore(t, owner, product.Vault.RootToken())
	product.VaultToken(t, tenant, product.Vault.RootToken())

	store := func(name, scope string) {
		product.Apply(t, owner, strings.NewReplacer("NAME", name, "SCOPE", scope, "TENANT", tenant, "STRANGER", stranger).Replace(`
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: ClusterSecretStore
metadata:
  name: NAME
spec:
  providerConfig:
    providerRef: {kind: Vault, name: backend, namespace: NS}
  authenticationScope: SCOPE
  conditions:
  - namespaces: [TENANT]
`))
		t.Cleanup(func() { _ = product.Client.Delete(context.Background(), suite.ClusterSecretStore(name)) })
	}

	es := func(ns, name, store string) {
		product.Apply(t, ns, strings.NewReplacer("key: db", "key: "+owner+"/db", "name: "+store+"\n", "kind: ClusterSecretStore\n    name: "+store+"\n").Replace(suite.SimpleES(name, store)))
	}

	provider, manifest := "provider-scope-"+owner, "manifest-scope-"+owner
	store(provider, "ProviderNamespace")
	store(manifest, "ManifestNamespace")
	product.StoreCondition(t, suite.ClusterSecretStore(provider), v2alpha1.ReasonValid)
	product.StoreCondition(t, suite.ClusterSecretStore(manifest), v2alpha1.ReasonValidationUnknown)

	es(tenant, "by-provider", provider)
	es(tenant, "by-manifest", manifest)
	product.Holds(t, tenant, "by-provider", "password", "s3cret")
	product.Holds(t, tenant, "by-manifest", "password", "s3cret")

	t.Run("a namespace that the conditions leave out is refused", func(t *testing.T) {
		es(stranger, "app", provider)
		product.Failing(t, stranger, "app", "do not admit namespace")
	})

	t.Run("a namespace without the credentials does not fall back on another's", func(t *testing.T) {
		if err := product.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "vault-token"}}); err != nil {
			t.Fatal(err)
		}

		bare := product.Namespace(t)
		product.Apply(t, owner, strings.NewReplacer("NAME", manifest, "BARE", bare).Replace(`
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: ClusterSecretStore
metadata:
  name: NAME
spec:
  providerConfig:
    providerRef: {kind: Vault, name: backend, namespace: NS}
  authenticationScope: ManifestNamespace
  conditions:
  - namespaces: [BARE]
`))
		es(bare, "app", manifest)
		product.Failing(t, bare, "app", `Secret "vault-token" in namespace "`+bare+`"`, "does not exist")
	})
}
