package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "provider.secretstore.external-secrets.io", Version: "v2alpha1"}

// AddToScheme adds this package's kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &AWSSecretManager{}, &AWSSecretManagerList{}, &AWSParameterStore{}, &AWSParameterStoreList{})
	metav1.AddToGroupVersion(s, GroupVersion)

	return nil
}
