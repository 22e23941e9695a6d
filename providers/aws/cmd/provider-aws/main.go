// Command provider-aws serves secrets of AWS Secrets Manager and Parameter
// Store.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/aws/store"
)

// Set by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() { os.Exit(server.Main(store.Provider(version, commit))) }
