// Command provider-webhook serves secrets of any HTTP API.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/provider"
	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
	"github.com/external-secrets/eso/providers/webhook/store"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() {
	var egress store.Egress

	os.Exit(server.Main(provider.Provider{
		Name: "webhook", Version: version, Commit: commit,
		Kinds: []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, egress.New)},
		Flags: egress.Register,
	}))
}
