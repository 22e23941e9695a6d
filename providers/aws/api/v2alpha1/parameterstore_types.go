package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AWSParameterStore is the Parameter Store of AWS Systems Manager in one
// region.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets}
// +kubebuilder:metadata:labels="external-secrets.io/component=provider"
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AWSParameterStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AWSParameterStoreSpec `json:"spec"`
}

// AWSParameterStoreSpec is the region, the identity and the scope of requests.
type AWSParameterStoreSpec struct {
	AWSAccess `json:",inline"`
}

// AWSParameterStoreList is a list of AWSParameterStores.
//
// +kubebuilder:object:root=true
type AWSParameterStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AWSParameterStore `json:"items"`
}
