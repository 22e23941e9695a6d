package store

import (
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// Provider returns the provider of a build. Its stores share connections and
// logins.
func Provider(version, commit string) provider.Provider {
	shared := newProcess()

	return provider.Provider{
		Name: "vault", Version: version, Commit: commit,
		Kinds: []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, shared.New)},
		Flags: shared.register,
	}
}
