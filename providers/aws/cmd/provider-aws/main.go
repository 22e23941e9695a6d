// Command provider-aws serves secrets of AWS Secrets Manager and Parameter
// Store.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/provider"
	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
	"github.com/external-secrets/eso/providers/aws/parameterstore"
	"github.com/external-secrets/eso/providers/aws/secretsmanager"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() {
	os.Exit(server.Main(provider.Provider{
		Name: "aws", Version: version, Commit: commit,
		Kinds: []provider.Kind{
			provider.StoreKind(v2alpha1.AddToScheme, secretsmanager.New),
			provider.StoreKind(v2alpha1.AddToScheme, parameterstore.New),
		},
	}))
}
