package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fake is a backend whose secrets are listed in its config. It is for tests and
// examples: every user who may read the config can read the secrets.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets}
// +kubebuilder:metadata:labels="external-secrets.io/component=provider"
type Fake struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec FakeSpec `json:"spec"`
}

// FakeSpec lists the secrets, and the faults of the backend.
type FakeSpec struct {
	// Data lists the secrets.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Data []FakeSecret `json:"data,omitempty"`

	// Latency added to every call of the backend, as a Go duration.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="latency must be a duration of zero or more, such as 100ms"
	Latency *metav1.Duration `json:"latency,omitempty"`

	// Error of every call of the backend. Absent means none.
	// +optional
	Error *FakeError `json:"error,omitempty"`
}

// FakeSecret is one version of a secret.
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && has(self.binaryValue))",message="set one of value and binaryValue"
type FakeSecret struct {
	// Key of the secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Key string `json:"key"`

	// Version of the secret. A read without a version returns the last one in the list.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Version string `json:"version,omitempty"`

	// Value as text.
	// +optional
	Value string `json:"value,omitempty"`

	// BinaryValue as base64.
	// +optional
	BinaryValue []byte `json:"binaryValue,omitempty"`

	// Metadata that metadataPolicy Fetch returns.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`
}

// FakeError is an error of the backend.
type FakeError struct {
	// Code of the error.
	// +kubebuilder:validation:Enum=Unavailable;Unauthenticated;PermissionDenied;ResourceExhausted;Internal
	Code string `json:"code"`

	// Message of the error.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// RetryAfter is the time after which the backend may be called again, as a Go
	// duration.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="retryAfter must be a duration of zero or more, such as 10s"
	RetryAfter *metav1.Duration `json:"retryAfter,omitempty"`
}

// FakeList is a list of Fakes.
//
// +kubebuilder:object:root=true
type FakeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Fake `json:"items"`
}
