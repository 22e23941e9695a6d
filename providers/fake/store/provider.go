package store

import (
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/fake/api/v2alpha1"
)

// Provider returns the provider of a build. What is pushed is kept by config, as
// long as the provider is in use.
func Provider(version, commit string) provider.Provider {
	return provider.Provider{
		Name: "fake", Version: version, Commit: commit,
		Kinds: []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, newMemory().New)},
	}
}
