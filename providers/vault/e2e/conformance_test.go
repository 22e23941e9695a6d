package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/external-secrets/eso/testkit/conformance"
)

// The provider conforms to the protocol, against a real Vault.
func TestConformance(t *testing.T) {
	t.Parallel()
	conforms(t, conformance.New(t, product, "vault"))
}

// slowly is a Vault that takes its time, behind a proxy.
func slowly(t *testing.T) string {
	t.Helper()

	address, err := url.Parse(product.Vault.Address())
	if err != nil {
		t.Fatal(err)
	}

	proxy := httputil.NewSingleHostReverseProxy(address)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		select {
		case <-time.After(2500 * time.Millisecond):
			proxy.ServeHTTP(w, request)
		case <-request.Context().Done():
		}
	}))
	t.Cleanup(server.Close)

	return server.URL
}

func conforms(t *testing.T, kit *conformance.Kit) {
	t.Helper()

	ns := product.Namespace(t)

	for _, password := range []string{"first-password", "second-password"} {
		product.WriteVault(t, "secret/"+ns+"/app/db", map[string]any{"password": password, "user": "app-user"})
	}

	product.WriteVault(t, "secret/"+ns+"/app/other", map[string]any{"token": "another-secret"})
	product.WriteVault(t, "secret/"+ns+"/by-hand", map[string]any{"made": "by hand"})

	if _, err := product.Vault.Request(t.Context(), http.MethodPost, "secret/metadata/"+ns+"/app/db", map[string]any{"custom_metadata": map[string]any{"team": "blue-team"}}); err != nil {
		t.Fatal(err)
	}

	product.VaultToken(t, ns, product.Vault.RootToken())

	config := func(name, server, token string) {
		product.Apply(t, ns, strings.NewReplacer("NAME", name, "SERVER", server, "TOKEN", token).Replace(`
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: NAME
spec:
  server: SERVER
  path: secret
  auth:
    tokenSecretRef: {name: TOKEN, key: token}
`))
	}

	config("backend", product.Vault.Address(), "vault-token")
	config("slow", slowly(t), "vault-token")
	config("invalid", product.Vault.Address(), "no-such-token")

	credential := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(credential, []byte(product.Vault.RootToken()), 0o600); err != nil {
		t.Fatal(err)
	}

	db, latest := ns+"/app/db", `{"password":"second-password","user":"app-user"}`

	kit.Run(t, map[string]any{
		"config": kit.ConfigOf(t, "Vault", ns, "backend"),
		"absent": map[string]string{"Watch": "Vault Community Edition has no event notifications"},
		"fixtures": map[string]any{
			"secrets": []any{
				map[string]any{
					"key": db, "value": latest, "properties": map[string]string{"password": "second-password"}, "missingProperty": "nothing",
					"map":      map[string]string{"password": "second-password", "user": "app-user"},
					"versions": map[string]string{"1": `{"password":"first-password","user":"app-user"}`, "2": latest}, "missingVersion": "3",
					"metadata": map[string]string{"team": "blue-team"},
				},
				map[string]any{"key": ns + "/app/other", "value": `{"token":"another-secret"}`},
			},
			"missingKey": ns + "/nothing",
			"find": []any{
				map[string]any{"path": ns + "/app", "keys": []string{db, ns + "/app/other"}},
				map[string]any{"path": ns + "/app", "tags": map[string]string{"team": "blue-team"}, "keys": []string{db}},
			},
			"write":           map[string]any{"prefix": ns + "/written/", "documents": true, "unowned": ns + "/by-hand"},
			"invalidConfig":   kit.ConfigOf(t, "Vault", ns, "invalid"),
			"slow":            map[string]any{"config": kit.ConfigOf(t, "Vault", ns, "slow"), "key": db},
			"credentialFiles": []string{credential},
		},
	},
		"claims.watch-is-served",
		"read.binary", // a KV engine holds JSON
		"watch.is-established", "watch.reports-changes",
	)
}
