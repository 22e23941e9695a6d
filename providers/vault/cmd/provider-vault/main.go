// Command provider-vault serves secrets of HashiCorp Vault.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/provider"
	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
	"github.com/external-secrets/eso/providers/vault/store"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() {
	vault := store.NewBackend()

	os.Exit(server.Main(provider.Provider{
		Name: "vault", Version: version, Commit: commit,
		Kinds: []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, vault.Open)},
		Flags: vault.Flags,
	}))
}
