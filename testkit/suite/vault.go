package suite

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VaultStore creates a Vault config, "backend", with a token of its own Secret,
// and a SecretStore of it, "store".
func (s *Suite) VaultStore(t *testing.T, namespace, token string) {
	t.Helper()

	s.VaultToken(t, namespace, token)
	s.Apply(t, namespace, strings.ReplaceAll(`
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: backend
spec:
  server: SERVER
  path: secret
  auth:
    tokenSecretRef: {name: vault-token, key: token}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: store
spec:
  providerConfig:
    providerRef: {kind: Vault, name: backend}
`, "SERVER", s.Vault.Address()))
}

// VaultToken creates the Secret "vault-token".
func (s *Suite) VaultToken(t *testing.T, namespace, token string) {
	t.Helper()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vault-token"}, StringData: map[string]string{"token": token}}
	if err := s.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// WriteVault writes a secret at a path of Vault's API, without "/v1/" and, for a
// KV engine of version 2, without "data/".
func (s *Suite) WriteVault(t *testing.T, path string, data map[string]any) {
	t.Helper()

	if err := s.Vault.Write(t.Context(), path, data); err != nil {
		t.Fatal(err)
	}
}
