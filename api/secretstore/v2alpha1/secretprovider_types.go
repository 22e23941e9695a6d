package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a SecretProvider's Ready condition.
const (
	// ReasonServing: the provider answers and speaks a known protocol.
	ReasonServing = "Serving"
	// ReasonDegraded: the provider answers but says that it is not well.
	// Ready is True.
	ReasonDegraded = "Degraded"
	// ReasonFailing: the provider answers that it cannot serve.
	ReasonFailing = "Failing"
	// ReasonUnreachable: no connection, or no answer in time.
	ReasonUnreachable = "Unreachable"
	// ReasonUntrusted: the TLS handshake failed: one side does not accept the
	// other's certificate.
	ReasonUntrusted = "Untrusted"
	// ReasonUnsupportedProtocol: the provider speaks no protocol version that
	// the operator knows.
	ReasonUnsupportedProtocol = "UnsupportedProtocol"
	// ReasonInvalidAnswer: the provider's answer breaks the protocol.
	ReasonInvalidAnswer = "InvalidAnswer"
	// ReasonInvalidRegistration: the registration itself cannot be used.
	ReasonInvalidRegistration = "InvalidRegistration"
	// ReasonCertificateFailed: the provider's certificate cannot be issued.
	ReasonCertificateFailed = "CertificateFailed"
)

// TLSMode says who makes a provider's certificates.
// +kubebuilder:validation:Enum=Managed;CertManager;External;SPIFFE
type TLSMode string

const (
	// TLSModeManaged: the operator issues the provider's certificate and
	// renews it. It is the default.
	TLSModeManaged TLSMode = "Managed"
	// TLSModeCertManager: cert-manager issues it, and the operator's own for this
	// provider, which clientCertificateSecretRef names.
	TLSModeCertManager TLSMode = "CertManager"
	// TLSModeExternal: another issuer does; the operator only verifies it.
	TLSModeExternal TLSMode = "External"
	// TLSModeSPIFFE: both sides take X.509 SVIDs from the SPIFFE Workload API.
	TLSModeSPIFFE TLSMode = "SPIFFE"
)

// ProviderTLS says how the operator recognises a provider.
// +kubebuilder:validation:XValidation:rule="!(has(self.caBundle) && has(self.caSecretRef))",message="set one of caBundle and caSecretRef"
// +kubebuilder:validation:XValidation:rule="!(has(self.caBundle) || has(self.caSecretRef) || has(self.clientCertificateSecretRef)) || (has(self.mode) && self.mode in ['CertManager', 'External'])",message="caBundle, caSecretRef and clientCertificateSecretRef go with mode CertManager or External: in the others there is one authority only"
// +kubebuilder:validation:XValidation:rule="!has(self.serverID) || (has(self.mode) && self.mode == 'SPIFFE')",message="serverID goes with mode SPIFFE"
// +kubebuilder:validation:XValidation:rule="!has(self.certificateSecretRef) || !has(self.mode) || self.mode == 'Managed'",message="certificateSecretRef goes with mode Managed: in the others the operator issues no certificate"
type ProviderTLS struct {
	// Mode: Managed, the default, CertManager, External or SPIFFE.
	// +optional
	Mode TLSMode `json:"mode,omitempty"`

	// ServerName that the provider's certificate must be for. Absent means the
	// host of the address.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`

	// ServerID is the SPIFFE ID that the provider must show in mode SPIFFE.
	// Absent means any ID of the operator's own trust domain.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*$`
	ServerID string `json:"serverID,omitempty"`

	// CABundle is a PEM bundle that the provider's certificate must chain to.
	// Where neither it nor caSecretRef is set, that is in mode External what the
	// operator's machine trusts, and in mode CertManager the key ca.crt of the
	// client certificate's Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`

	// CASecretRef names a key with such a bundle in a Secret of the operator's
	// namespace.
	// +optional
	CASecretRef *CASecretReference `json:"caSecretRef,omitempty"`

	// ClientCertificateSecretRef names a Secret of type kubernetes.io/tls in the
	// operator's namespace: the certificate that the operator shows to this
	// provider. Absent means the operator's own, which its own CA has signed.
	// +optional
	ClientCertificateSecretRef *ObjectName `json:"clientCertificateSecretRef,omitempty"`

	// CertificateSecretRef says into which Secret the operator writes the
	// provider's certificate in mode Managed. Absent means the Secret
	// <name of the SecretProvider>-tls in the namespace that the address
	// names.
	// +optional
	CertificateSecretRef *CertificateSecretReference `json:"certificateSecretRef,omitempty"`
}

// CASecretReference names a key of a Secret in the operator's namespace.
type CASecretReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key in the Secret. Absent means ca.crt.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// CertificateSecretReference names a Secret that the operator writes.
type CertificateSecretReference struct {
	// Namespace of the provider.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// Name of the Secret. Absent means <name of the SecretProvider>-tls.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ProviderLimits bound what the operator asks of a provider.
type ProviderLimits struct {
	// MaxConcurrentRequests in flight at one time. Absent means 64.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxConcurrentRequests *int32 `json:"maxConcurrentRequests,omitempty"`

	// RequestsPerSecond on average. Absent means unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	RequestsPerSecond *int32 `json:"requestsPerSecond,omitempty"`
}

// ProviderKind names a kind of provider config.
type ProviderKind struct {
	// APIVersion of the kind. Absent means
	// provider.secretstore.external-secrets.io/v2alpha1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind, such as Vault.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
}

// Version is the API version of the kind, also where it is left out.
func (k *ProviderKind) Version() string {
	if k.APIVersion == "" {
		return DefaultConfigAPIVersion
	}

	return k.APIVersion
}

// SecretProviderSpec says where a provider listens and how far it is trusted.
type SecretProviderSpec struct {
	// Address where the provider listens: dns:///svc.ns.svc:port, host:port,
	// https://host:port, unix:///path or http+unix:///path.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('http://')",message="http:// is refused: secrets travel over TLS only; use dns:///host:port, host:port, https://host:port, unix:///path or http+unix:///path"
	Address string `json:"address"`

	// TLS says how the operator recognises the provider.
	// +optional
	TLS *ProviderTLS `json:"tls,omitempty"`

	// Kinds of provider config that the provider may serve; what else it says of
	// itself is not believed. Empty means whatever it says. Of several
	// SecretProviders that serve a kind, one that lists it comes before those
	// that do not: no other can take its stores away.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Kinds []ProviderKind `json:"kinds,omitempty"`

	// AllowedNamespaces lists the namespaces whose provider configs may use
	// this provider. Empty means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	AllowedNamespaces []string `json:"allowedNamespaces,omitempty"`

	// Limits bound what the operator asks of the provider.
	// +optional
	Limits *ProviderLimits `json:"limits,omitempty"`
}

// ServedKind is one kind of provider config that a provider serves.
type ServedKind struct {
	// APIVersion of the kind.
	APIVersion string `json:"apiVersion"`

	// Kind of the provider config.
	Kind string `json:"kind"`

	// Capabilities of the provider for this kind.
	// +optional
	// +listType=set
	Capabilities []string `json:"capabilities,omitempty"`
}

// SecretProviderStatus is the last state that the operator received from the provider.
type SecretProviderStatus struct {
	// Conditions; type Ready says whether the provider serves.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Name that the provider gives itself.
	// +optional
	Name string `json:"name,omitempty"`

	// Version of the provider's build.
	// +optional
	Version string `json:"version,omitempty"`

	// ProtocolVersions that the provider serves.
	// +optional
	// +listType=atomic
	ProtocolVersions []string `json:"protocolVersions,omitempty"`

	// Kinds of provider config that the provider serves.
	// +optional
	// +listType=map
	// +listMapKey=apiVersion
	// +listMapKey=kind
	Kinds []ServedKind `json:"kinds,omitempty"`

	// Summary has lists of the status as text, for printer columns.
	// +optional
	Summary *SecretProviderSummary `json:"summary,omitempty"`
}

// SecretProviderSummary has lists of a SecretProvider's status as text: a
// printer column shows a list as JSON.
type SecretProviderSummary struct {
	// Protocols are the protocol versions, separated by commas.
	// +optional
	Protocols string `json:"protocols,omitempty"`

	// Kinds are the kinds of provider config, separated by commas.
	// +optional
	Kinds string `json:"kinds,omitempty"`
}

// SecretProvider registers a provider process with the operator.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories={external-secrets},shortName=sp
// +kubebuilder:metadata:labels="external-secrets.io/component=controller"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Protocol",type=string,JSONPath=`.status.summary.protocols`
// +kubebuilder:printcolumn:name="Kinds",type=string,JSONPath=`.status.summary.kinds`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SecretProvider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SecretProviderSpec `json:"spec"`
	// +optional
	Status SecretProviderStatus `json:"status,omitempty"`
}

// SecretProviderList is a list of SecretProviders.
//
// +kubebuilder:object:root=true
type SecretProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SecretProvider `json:"items"`
}
