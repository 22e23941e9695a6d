package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionReady is the condition type that says whether a store or a
// provider can be used.
const ConditionReady = "Ready"

// Reasons of a store's Ready condition.
const (
	// ReasonValid: the provider has accepted the store's config.
	ReasonValid = "Valid"
	// ReasonValidationUnknown: the provider cannot validate the config before the
	// first read, for example because credentials resolve per manifest. Ready is
	// True.
	ReasonValidationUnknown = "ValidationUnknown"
	// ReasonInvalidProviderConfig: the provider, or the operator, refuses the
	// store's config.
	ReasonInvalidProviderConfig = "InvalidProviderConfig"
	// ReasonProviderNotRegistered: no SecretProvider allows what the store
	// asks for. Nothing was dialled.
	ReasonProviderNotRegistered = "ProviderNotRegistered"
	// ReasonProviderUnavailable: the provider did not answer.
	ReasonProviderUnavailable = "ProviderUnavailable"
	// ReasonOtherController: spec.controller names another operator.
	ReasonOtherController = "OtherController"
)

// GatingPolicy decides whether a store that is not Ready is used.
// +kubebuilder:validation:Enum=Enabled;Disabled
type GatingPolicy string

const (
	// GatingEnabled keeps every fetch from a store that is not Ready. It is
	// the default.
	GatingEnabled GatingPolicy = "Enabled"
	// GatingDisabled lets fetches try a store that is not Ready.
	GatingDisabled GatingPolicy = "Disabled"
)

// AuthenticationScope decides in which namespace the credential references of
// a ClusterSecretStore's provider config resolve.
// +kubebuilder:validation:Enum=ProviderNamespace;ManifestNamespace
type AuthenticationScope string

const (
	// AuthenticationScopeProviderNamespace resolves them in the namespace of
	// the provider config. It is the default.
	AuthenticationScopeProviderNamespace AuthenticationScope = "ProviderNamespace"
	// AuthenticationScopeManifestNamespace resolves them in the namespace of
	// the ExternalSecret or PushSecret that uses the store.
	AuthenticationScopeManifestNamespace AuthenticationScope = "ManifestNamespace"
)

// RetrySettings are passed to the provider, which applies them to its calls of
// the backend.
type RetrySettings struct {
	// MaxRetries after the first try. 0 means none; absent means the
	// provider's default.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// RetryInterval is the wait before the first retry, as a Go duration such
	// as "10s". Absent means the provider's default.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="retryInterval must be a duration of zero or more, such as 10s"
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`
}

// ProviderReference names a provider config.
type ProviderReference struct {
	// APIVersion of the provider config. Absent means
	// provider.secretstore.external-secrets.io/v2alpha1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the provider config, such as Vault.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// Name of the provider config.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// Namespace of the provider config. In a SecretStore it is empty or the
	// store's own; in a ClusterSecretStore it is required.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
}

// ClientCertificate is the certificate that the operator shows to the
// provider. Empty means the operator's own, which it issues and renews itself.
type ClientCertificate struct {
	// SecretRef names a Secret of type kubernetes.io/tls with a certificate of
	// the store's own.
	// +optional
	SecretRef *ObjectName `json:"secretRef,omitempty"`
}

// ObjectName names an object whose kind and namespace the field decides.
type ObjectName struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// ServiceAccountRef makes the operator add a ServiceAccount's token to every
// call. Empty means the operator's own ServiceAccount.
type ServiceAccountRef struct {
	// Name of a ServiceAccount in the namespace of the provider config.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Audience of the token. Absent means the provider's.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Audience string `json:"audience,omitempty"`
}

// SPIFFERef makes the connection use X.509 SVIDs of the SPIFFE Workload API in
// place of certificates.
type SPIFFERef struct {
	// ServerID is the SPIFFE ID that the provider must show. Absent means what
	// the SecretProvider says, which must be in mode SPIFFE then.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^spiffe://[a-z0-9._-]+(/[A-Za-z0-9._-]+)*$`
	ServerID string `json:"serverID,omitempty"`
}

// ProviderAuth says how the operator authenticates itself to the provider.
// The ways combine, but that spiffeRef replaces clientCertificate.
// +kubebuilder:validation:XValidation:rule="!(has(self.clientCertificate) && has(self.spiffeRef))",message="spiffeRef replaces clientCertificate: set one of them"
type ProviderAuth struct {
	// ClientCertificate that secures the connection. Absent and empty both
	// mean the operator's own.
	// +optional
	ClientCertificate *ClientCertificate `json:"clientCertificate,omitempty"`

	// ServiceAccountRef adds a token to each call.
	// +optional
	ServiceAccountRef *ServiceAccountRef `json:"serviceAccountRef,omitempty"`

	// SPIFFERef secures the connection with SPIFFE identities.
	// +optional
	SPIFFERef *SPIFFERef `json:"spiffeRef,omitempty"`
}

// ProviderConfig says which provider process serves a store and which config
// it is given.
type ProviderConfig struct {
	// Address where the provider listens: dns:///svc.ns.svc:port, host:port,
	// https://host:port, unix:///path or http+unix:///path. It must be that of
	// a SecretProvider, or one that the operator's --allow-provider-address
	// lists. Absent, which is the normal case, the SecretProvider that serves
	// providerRef's kind decides.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('http://')",message="http:// is refused: secrets travel over TLS only; use dns:///host:port, host:port, https://host:port, unix:///path or http+unix:///path"
	Address string `json:"address,omitempty"`

	// ProviderRef names the provider config.
	ProviderRef ProviderReference `json:"providerRef"`

	// Auth says how the operator authenticates itself to the provider. Absent
	// and empty both mean the operator's own client certificate.
	// +optional
	Auth *ProviderAuth `json:"auth,omitempty"`
}

// StoreSpec is what SecretStore and ClusterSecretStore have in common.
type StoreSpec struct {
	// RefreshInterval between two validations of the store, as a Go duration.
	// Absent or 0 means the operator's --store-requeue-interval (5m).
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="refreshInterval must be a duration of zero or more, such as 5m"
	RefreshInterval *metav1.Duration `json:"refreshInterval,omitempty"`

	// Controller is the class of the operator that serves this store. Empty
	// means any.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Controller string `json:"controller,omitempty"`

	// RetrySettings for the provider's calls of the backend.
	// +optional
	RetrySettings *RetrySettings `json:"retrySettings,omitempty"`

	// ProviderConfig says which provider serves this store.
	ProviderConfig ProviderConfig `json:"providerConfig"`

	// GatingPolicy Enabled, the default, keeps every ExternalSecret from
	// fetching through this store while it is not Ready.
	// +optional
	GatingPolicy GatingPolicy `json:"gatingPolicy,omitempty"`
}

// ProviderInfo is what the provider says of itself.
type ProviderInfo struct {
	// Name of the SecretProvider, or of the provider where none is registered.
	// +optional
	Name string `json:"name,omitempty"`

	// Version of the provider's build.
	// +optional
	Version string `json:"version,omitempty"`

	// Protocol version in use.
	// +optional
	Protocol string `json:"protocol,omitempty"`
}

// StoreSummary has lists of a store's status as text: a printer column shows a
// list as JSON.
type StoreSummary struct {
	// Capabilities, separated by commas.
	// +optional
	Capabilities string `json:"capabilities,omitempty"`
}

// StoreStatus is what the operator last saw of a store.
type StoreStatus struct {
	// Conditions; type Ready says whether the store can be used.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Capabilities of the provider for this kind of config.
	// +optional
	// +listType=set
	Capabilities []string `json:"capabilities,omitempty"`

	// Summary has lists of the status as text, for printer columns.
	// +optional
	Summary *StoreSummary `json:"summary,omitempty"`

	// Provider that serves the store.
	// +optional
	Provider *ProviderInfo `json:"provider,omitempty"`

	// Revision changes whenever the store, its provider config or its
	// registration does. What was fetched under another revision is fetched
	// anew.
	// +optional
	Revision string `json:"revision,omitempty"`
}

// SecretStore gives the ExternalSecrets and PushSecrets of its namespace
// access to one backend.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets},shortName=ss
// +kubebuilder:metadata:labels="external-secrets.io/component=controller"
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.providerConfig.providerRef.kind`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Capabilities",type=string,priority=1,JSONPath=`.status.summary.capabilities`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SecretStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SecretStoreSpec `json:"spec"`
	// +optional
	Status StoreStatus `json:"status,omitempty"`
}

// SecretStoreSpec is what a SecretStore should be.
type SecretStoreSpec struct {
	StoreSpec `json:",inline"`
}

// SecretStoreList is a list of SecretStores.
//
// +kubebuilder:object:root=true
type SecretStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SecretStore `json:"items"`
}

// NamespaceCondition admits namespaces: those that its selector matches, that
// it lists, or whose whole name one of its regular expressions matches.
type NamespaceCondition struct {
	// NamespaceSelector matches the namespace's labels. Empty matches every
	// namespace; absent matches none.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Namespaces by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// NamespaceRegexes are RE2 expressions, anchored at both ends: each must
	// match the whole name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="[''.matches(self)].size() == 1",message="it must be an RE2 expression"
	NamespaceRegexes []string `json:"namespaceRegexes,omitempty"`
}

// ClusterSecretStoreSpec is what a ClusterSecretStore should be.
// +kubebuilder:validation:XValidation:rule="has(self.providerConfig.providerRef.__namespace__) && size(self.providerConfig.providerRef.__namespace__) > 0",message="providerConfig.providerRef.namespace is required in a ClusterSecretStore"
type ClusterSecretStoreSpec struct {
	StoreSpec `json:",inline"`

	// AuthenticationScope decides in which namespace credential references
	// resolve: ProviderNamespace, the default, or ManifestNamespace.
	// +optional
	AuthenticationScope AuthenticationScope `json:"authenticationScope,omitempty"`

	// Conditions under which a namespace may use the store: any entry
	// suffices. Empty means every namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Conditions []NamespaceCondition `json:"conditions,omitempty"`
}

// ClusterSecretStore gives the namespaces that its conditions admit access to
// one backend, through a provider config of one namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories={external-secrets},shortName=css
// +kubebuilder:metadata:labels="external-secrets.io/component=controller"
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.providerConfig.providerRef.kind`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Capabilities",type=string,priority=1,JSONPath=`.status.summary.capabilities`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterSecretStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterSecretStoreSpec `json:"spec"`
	// +optional
	Status StoreStatus `json:"status,omitempty"`
}

// ClusterSecretStoreList is a list of ClusterSecretStores.
//
// +kubebuilder:object:root=true
type ClusterSecretStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSecretStore `json:"items"`
}
