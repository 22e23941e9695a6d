package store

import (
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

// Provider returns the provider of a build. Its flags decide which addresses its
// stores may send requests to.
func Provider(version, commit string) provider.Provider {
	var allowed egressPolicy

	return provider.Provider{
		Name: "webhook", Version: version, Commit: commit,
		Kinds: []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, allowed.New)},
		Flags: allowed.register,
	}
}
