// Command provider-kubernetes serves Secrets and other objects of Kubernetes
// clusters.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/provider"
	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
	"github.com/external-secrets/eso/providers/kubernetes/resource"
	"github.com/external-secrets/eso/providers/kubernetes/secret"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() {
	os.Exit(server.Main(provider.Provider{
		Name: "kubernetes", Version: version, Commit: commit,
		Kinds: []provider.Kind{
			provider.StoreKind(v2alpha1.AddToScheme, secret.New),
			provider.StoreKind(v2alpha1.AddToScheme, resource.New),
		},
	}))
}
