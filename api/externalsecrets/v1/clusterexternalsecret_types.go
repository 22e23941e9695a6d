package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a ClusterExternalSecret's Ready condition.
const (
	// ReasonNamespacesProvisioned: every namespace that matches has its
	// ExternalSecret.
	ReasonNamespacesProvisioned = "NamespacesProvisioned"
	// ReasonNamespacesFailed: one namespace or more has not.
	ReasonNamespacesFailed = "NamespacesFailed"
	// ReasonInvalidSelector: a selector is invalid, and no namespace was changed.
	ReasonInvalidSelector = "InvalidSelector"
)

// ExternalSecretMetadata is given to every ExternalSecret that is made.
type ExternalSecretMetadata struct {
	// Labels of the ExternalSecrets.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the ExternalSecrets.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ClusterExternalSecretSpec says which namespaces get which ExternalSecret.
type ClusterExternalSecretSpec struct {
	// ExternalSecretSpec of the ExternalSecrets.
	ExternalSecretSpec ExternalSecretSpec `json:"externalSecretSpec"`

	// ExternalSecretName of the ExternalSecrets. Absent means the
	// ClusterExternalSecret's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ExternalSecretName string `json:"externalSecretName,omitempty"`

	// ExternalSecretMetadata of the ExternalSecrets.
	// +optional
	ExternalSecretMetadata ExternalSecretMetadata `json:"externalSecretMetadata,omitempty"`

	// NamespaceSelectors select namespaces by their labels; any that matches
	// counts. An empty selector matches every namespace.
	// +optional
	// +listType=atomic
	NamespaceSelectors []*metav1.LabelSelector `json:"namespaceSelectors,omitempty"`

	// NamespaceSelector is one more selector. It is deprecated: write it as an
	// entry of namespaceSelectors.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Namespaces are chosen by name, besides those that a selector matches. They
	// are deprecated: write an entry of namespaceSelectors with the label
	// kubernetes.io/metadata.name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespaces []string `json:"namespaces,omitempty"`

	// RefreshTime between two looks at everything, as a Go duration. Absent or
	// 0 means that a change is what is acted on, and there is no need for more.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="refreshTime must be a duration of zero or more, such as 1h"
	RefreshTime *metav1.Duration `json:"refreshTime,omitempty"`
}

// ClusterExternalSecretNamespaceFailure says why a namespace has no
// ExternalSecret as it should be.
type ClusterExternalSecretNamespaceFailure struct {
	// Namespace that failed.
	Namespace string `json:"namespace"`

	// Reason for people.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ClusterExternalSecretStatus is what the operator last saw.
type ClusterExternalSecretStatus struct {
	// ExternalSecretName of the ExternalSecrets.
	// +optional
	ExternalSecretName string `json:"externalSecretName,omitempty"`

	// FailedNamespaces match, and have no ExternalSecret as it should be.
	// +optional
	// +listType=atomic
	FailedNamespaces []ClusterExternalSecretNamespaceFailure `json:"failedNamespaces,omitempty"`

	// ProvisionedNamespaces have their ExternalSecret, whose own status reports
	// whether it is in sync.
	// +optional
	// +listType=atomic
	ProvisionedNamespaces []string `json:"provisionedNamespaces,omitempty"`

	// Conditions; type Ready says whether every namespace that matches has its
	// ExternalSecret.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// ClusterExternalSecret keeps an ExternalSecret in every namespace that
// matches.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories={external-secrets},shortName=ces
// +kubebuilder:metadata:labels="external-secrets.io/component=controller"
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.externalSecretSpec.secretStoreRef.name`
// +kubebuilder:printcolumn:name="Refresh Interval",type=string,JSONPath=`.spec.refreshTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ClusterExternalSecret struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterExternalSecretSpec `json:"spec"`
	// +optional
	Status ClusterExternalSecretStatus `json:"status,omitempty"`
}

// ClusterExternalSecretList is a list of ClusterExternalSecrets.
//
// +kubebuilder:object:root=true
type ClusterExternalSecretList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterExternalSecret `json:"items"`
}
