// Command provider-vault serves secrets of HashiCorp Vault.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/vault/store"
)

// Set by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() { os.Exit(server.Main(store.Provider(version, commit))) }
