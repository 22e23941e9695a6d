package store

import (
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
	"github.com/external-secrets/eso/providers/aws/store/parameterstore"
	"github.com/external-secrets/eso/providers/aws/store/secretsmanager"
)

// Provider returns the provider of a build.
func Provider(version, commit string) provider.Provider {
	return provider.Provider{
		Name: "aws", Version: version, Commit: commit,
		Kinds: []provider.Kind{
			provider.StoreKind(v2alpha1.AddToScheme, secretsmanager.New),
			provider.StoreKind(v2alpha1.AddToScheme, parameterstore.New),
		},
	}
}
