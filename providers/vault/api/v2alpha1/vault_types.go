package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
)

// Vault is a key/value secrets engine of a HashiCorp Vault server.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets}
// +kubebuilder:metadata:labels="external-secrets.io/component=provider"
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.server`
// +kubebuilder:printcolumn:name="Path",type=string,JSONPath=`.spec.path`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Vault struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VaultSpec `json:"spec"`
}

// KVVersion of a secrets engine.
// +kubebuilder:validation:Enum=v1;v2
type KVVersion string

const (
	// KVv1 keeps one version of a secret.
	KVv1 KVVersion = "v1"
	// KVv2 keeps several. It is the default.
	KVv2 KVVersion = "v2"
)

// VaultSpec says where the engine is and how to log in.
// +kubebuilder:validation:XValidation:rule="!(has(self.caBundle) && has(self.caProvider))",message="set one of caBundle and caProvider"
type VaultSpec struct {
	// Server is the URL of the Vault server, such as
	// https://vault.example.com:8200.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^/?#\s]+(/[^?#\s]*)?$`
	Server string `json:"server"`

	// Path where the engine is mounted, such as secret. Absent, the first part
	// of each key is the mount.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Version of the engine: v2, the default, or v1.
	// +optional
	Version KVVersion `json:"version,omitempty"`

	// Namespace of Vault Enterprise in which the engine is.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Namespace string `json:"namespace,omitempty"`

	// CABundle is a PEM bundle that the server's certificate must chain to.
	// Without it and caProvider the system's authorities count.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`

	// CAProvider names where such a bundle is kept.
	// +optional
	CAProvider *metav1alpha1.CASource `json:"caProvider,omitempty"`

	// Auth says how to log in.
	Auth VaultAuth `json:"auth"`
}

// VaultAuth says how to log in. Exactly one method is set.
// +kubebuilder:validation:XValidation:rule="has(self.tokenSecretRef) != has(self.kubernetes)",message="exactly one of tokenSecretRef and kubernetes must be set"
type VaultAuth struct {
	// Namespace of Vault Enterprise to log in to. Absent means that of the
	// engine.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Namespace string `json:"namespace,omitempty"`

	// TokenSecretRef names a key with a token.
	// +optional
	TokenSecretRef *metav1alpha1.SecretKeySelector `json:"tokenSecretRef,omitempty"`

	// Kubernetes logs in with a ServiceAccount's token.
	// +optional
	Kubernetes *VaultKubernetesAuth `json:"kubernetes,omitempty"`
}

// VaultKubernetesAuth logs in with a ServiceAccount's token: that of
// serviceAccountRef, or that in secretRef.
// +kubebuilder:validation:XValidation:rule="has(self.serviceAccountRef) != has(self.secretRef)",message="exactly one of serviceAccountRef and secretRef must be set"
type VaultKubernetesAuth struct {
	// MountPath of the auth method. Absent means kubernetes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	MountPath string `json:"mountPath,omitempty"`

	// Role to log in to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Role string `json:"role"`

	// ServiceAccountRef names a ServiceAccount; its tokens have audience vault
	// unless the reference names others.
	// +optional
	ServiceAccountRef *metav1alpha1.ServiceAccountSelector `json:"serviceAccountRef,omitempty"`

	// SecretRef names a key with a token.
	// +optional
	SecretRef *metav1alpha1.SecretKeySelector `json:"secretRef,omitempty"`
}

// VaultList is a list of Vaults.
//
// +kubebuilder:object:root=true
type VaultList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Vault `json:"items"`
}
