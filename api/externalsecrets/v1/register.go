package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of ExternalSecret.
const Group = "external-secrets.io"

// Version is the version of this package's kinds.
const Version = "v1"

// ExternalSecretKind is the kind of ExternalSecret, as it is used in owner
// references.
const ExternalSecretKind = "ExternalSecret"

// ClusterExternalSecretKind is the kind of ClusterExternalSecret, likewise.
const ClusterExternalSecretKind = "ClusterExternalSecret"

// GroupVersion of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// AddToScheme adds this package's kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ExternalSecret{}, &ExternalSecretList{},
		&ClusterExternalSecret{}, &ClusterExternalSecretList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)

	return nil
}
