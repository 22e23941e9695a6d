package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AWSSecretManager is AWS Secrets Manager in one region.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets}
// +kubebuilder:metadata:labels="external-secrets.io/component=provider"
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AWSSecretManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AWSSecretManagerSpec `json:"spec"`
}

// AWSSecretManagerSpec is the region, the identity and the scope of requests, and
// how secrets are deleted.
type AWSSecretManagerSpec struct {
	AWSAccess `json:",inline"`

	// SecretsManager configures how secrets are deleted.
	// +optional
	SecretsManager SecretsManagerDeletion `json:"secretsManager,omitzero"`
}

// SecretsManagerDeletion configures how secrets are deleted.
// +kubebuilder:validation:XValidation:rule="!(has(self.forceDeleteWithoutRecovery) && self.forceDeleteWithoutRecovery && has(self.recoveryWindowInDays))",message="set one of forceDeleteWithoutRecovery and recoveryWindowInDays"
type SecretsManagerDeletion struct {
	// ForceDeleteWithoutRecovery deletes a secret at once and permanently.
	// +optional
	ForceDeleteWithoutRecovery bool `json:"forceDeleteWithoutRecovery,omitempty"`

	// RecoveryWindowInDays is how long a deleted secret can be restored: 7 to 30
	// days. Absent means AWS's default, which is 30.
	// +optional
	// +kubebuilder:validation:Minimum=7
	// +kubebuilder:validation:Maximum=30
	RecoveryWindowInDays int64 `json:"recoveryWindowInDays,omitempty"`
}

// AWSSecretManagerList is a list of AWSSecretManagers.
//
// +kubebuilder:object:root=true
type AWSSecretManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AWSSecretManager `json:"items"`
}
