// Command provider-fake serves secrets that are listed in its config, for
// tests and examples.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/fake/store"
)

// Set by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() { os.Exit(server.Main(store.Provider(version, commit))) }
