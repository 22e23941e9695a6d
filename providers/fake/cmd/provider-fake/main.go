// Command provider-fake serves secrets that stand in its config: for tests and
// examples.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/provider"
	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/fake/api/v2alpha1"
	"github.com/external-secrets/eso/providers/fake/store"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() {
	os.Exit(server.Main(provider.Provider{
		Name: "fake", Version: version, Commit: commit,
		Kinds: []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, store.NewMemory().Open)},
	}))
}
