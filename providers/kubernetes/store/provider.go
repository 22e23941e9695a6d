package store

import (
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
	"github.com/external-secrets/eso/providers/kubernetes/store/resource"
	"github.com/external-secrets/eso/providers/kubernetes/store/secret"
)

// Provider returns the provider of a build.
func Provider(version, commit string) provider.Provider {
	return provider.Provider{
		Name: "kubernetes", Version: version, Commit: commit,
		Kinds: []provider.Kind{
			provider.StoreKind(v2alpha1.AddToScheme, secret.New),
			provider.StoreKind(v2alpha1.AddToScheme, resource.New),
		},
	}
}
