// Command provider-kubernetes serves Secrets and other objects of Kubernetes
// clusters.
package main

import (
	"os"

	"github.com/external-secrets/eso/sdk/server"

	"github.com/external-secrets/eso/providers/kubernetes/store"
)

// Set by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

func main() { os.Exit(server.Main(store.Provider(version, commit))) }
