package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"
)

func TestFindInVault(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/team/a", map[string]any{"k": "a"})
	product.WriteVault(t, "secret/"+ns+"/team/deep/b", map[string]any{"k": "b"})
	product.WriteVault(t, "secret/"+ns+"/other", map[string]any{"k": "c"})
	product.VaultStore(t, ns, product.Vault.RootToken())
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	product.Apply(t, ns, suite.ES("app", `  dataFrom:
  - find: {path: `+ns+`, name: {regexp: /team/}}
    rewrite: [{regexp: {source: "^.*/", target: ""}}]
`))
	product.Synced(t, ns, "app")

	if diff := cmp.Diff(map[string]string{"a": `{"k":"a"}`, "b": `{"k":"b"}`}, product.Data(t, ns, "app")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}
