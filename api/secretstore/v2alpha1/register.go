package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of the stores.
const Group = "secretstore.external-secrets.io"

// Version is the version of this package's kinds.
const Version = "v2alpha1"

// Kinds of this package, as they stand in references.
const (
	SecretStoreKind        = "SecretStore"
	ClusterSecretStoreKind = "ClusterSecretStore"
	SecretProviderKind     = "SecretProvider"
)

// DefaultConfigAPIVersion is the apiVersion of a provider config whose
// reference names none.
const DefaultConfigAPIVersion = "provider.secretstore.external-secrets.io/v2alpha1"

// GroupVersion of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme adds this package's kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&SecretStore{}, &SecretStoreList{},
		&ClusterSecretStore{}, &ClusterSecretStoreList{},
		&SecretProvider{}, &SecretProviderList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)

	return nil
}
