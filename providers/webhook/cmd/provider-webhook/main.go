// Command provider-webhook serves secrets of any HTTP API.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/webhook/store"
)

// Set by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() { os.Exit(server.Main(store.Provider(version, commit))) }
