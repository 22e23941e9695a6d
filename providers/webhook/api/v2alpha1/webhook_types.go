package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
)

// Webhook is any HTTP API that stores secrets.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets}
// +kubebuilder:metadata:labels="external-secrets.io/component=provider"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Webhook struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WebhookSpec `json:"spec"`
}

// WebhookSpec defines the requests. URL, headers, bodies and the JSONPath are
// templates of Go's text/template, with the values and functions that the provider's
// README lists.
// +kubebuilder:validation:XValidation:rule="!(has(self.caBundle) && has(self.caProvider))",message="set one of caBundle and caProvider"
type WebhookSpec struct {
	// URL to read a secret from, such as
	// https://api.example.com/secrets/{{ .remoteRef.key }}. Scheme, host and the
	// slash after it contain no template. Inserted values are percent-encoded.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^\s*https?://`
	URL string `json:"url"`

	// Method of the request that reads. Absent means GET.
	// +optional
	// +kubebuilder:validation:Enum=GET;POST;PUT
	Method string `json:"method,omitempty"`

	// Headers of every request. A header whose value is empty is not sent.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Headers map[string]HeaderTemplate `json:"headers,omitempty"`

	// Body of the request that reads. Absent means none.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Body string `json:"body,omitempty"`

	// Result selects the secret in the response.
	// +optional
	Result WebhookResult `json:"result,omitempty"`

	// NotFound lists the statuses with which the API reports that a secret does not
	// exist. Absent means 404. If a proxy in front of the API returns one of them,
	// secrets seem to be deleted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	NotFound []NotFoundStatus `json:"notFound,omitempty"`

	// Push is the request that writes a secret. Without it the store does not
	// push.
	// +optional
	Push *WebhookRequest `json:"push,omitempty"`

	// Delete is the request that deletes a secret. Without it the store does not
	// delete.
	// +optional
	Delete *WebhookRequest `json:"delete,omitempty"`

	// Exists is the request that checks whether a secret exists, without reading it.
	// Without it the secret is read.
	// +optional
	Exists *WebhookRequest `json:"exists,omitempty"`

	// OwnerHeader names the header of a response with the mark of the secret's owner.
	// With it the provider checks the owner before it writes; without it only the API
	// can refuse the write, with status 409 or 412.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern="^[A-Za-z0-9-]+$"
	OwnerHeader string `json:"ownerHeader,omitempty"`

	// Secrets are the credentials that templates may use: .secrets.<name>, or
	// .<name>.<key>.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Secrets []WebhookSecret `json:"secrets,omitempty"`

	// CABundle is a PEM bundle that the server's certificate must chain to.
	// Without it and caProvider the system's authorities are used.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`

	// CAProvider names a Secret or ConfigMap with such a bundle.
	// +optional
	CAProvider *metav1alpha1.CASource `json:"caProvider,omitempty"`

	// ClientTLS is the client certificate.
	// +optional
	ClientTLS *WebhookClientTLS `json:"clientTLS,omitempty"`

	// Auth is a login that headers alone cannot express.
	// +optional
	Auth *WebhookAuth `json:"auth,omitempty"`

	// Timeout of a request, from 1s to 5m. Absent means 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('5m')",message="must be from 1s to 5m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// RequestsPerSecond limits the requests, with bursts of the same number. Absent
	// means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	RequestsPerSecond int32 `json:"requestsPerSecond,omitempty"`
}

// HeaderTemplate is the template of a header's value.
// +kubebuilder:validation:MaxLength=8192
type HeaderTemplate string

// NotFoundStatus is a status with which an API reports that a secret does not
// exist.
// +kubebuilder:validation:Minimum=200
// +kubebuilder:validation:Maximum=499
// +kubebuilder:validation:XValidation:rule="self != 200 && self != 304 && self != 401 && self != 429",message="200, 304, 401 and 429 mean something else"
type NotFoundStatus int32

// WebhookRequest is a request that pushes a secret, deletes it or checks whether it
// exists. Templates of the first two may use .owner and .revision, those of a push
// .value and .adopt too.
type WebhookRequest struct {
	// URL of the request. Absent means the spec's.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^\s*https?://`
	URL string `json:"url,omitempty"`

	// Method. Absent means PUT to push, DELETE to delete, and HEAD to check.
	// +optional
	// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;PATCH;DELETE
	Method string `json:"method,omitempty"`

	// Headers besides the spec's, or in place of those with the same name.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Headers map[string]HeaderTemplate `json:"headers,omitempty"`

	// Body. Absent means, to push, the value as it is, and else none.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Body string `json:"body,omitempty"`
}

// WebhookResult selects the secret in a response.
type WebhookResult struct {
	// JSONPath of the secret in a response that is JSON, such as $.data.value or
	// $.items[?(@.name == 'a')].value, of which the first match counts. Absent
	// means that the body of the response is the secret.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	JSONPath string `json:"jsonPath,omitempty"`
}

// WebhookSecret is a credential that templates may use.
type WebhookSecret struct {
	// Name in templates. Several keys of one Secret may have the same name.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['remoteRef', 'secrets', 'value', 'owner', 'adopt', 'revision'])",message="is a name that templates use already"
	Name string `json:"name"`

	// SecretRef names the key.
	SecretRef metav1alpha1.SecretKeySelector `json:"secretRef"`
}

// WebhookAuth is a way to log in.
type WebhookAuth struct {
	// NTLM logs in as a user of a Windows domain.
	NTLM WebhookNTLM `json:"ntlm"`
}

// WebhookNTLM is a user of a Windows domain. NTLM version 2 derives a proof from the
// password, which itself is not sent. It authenticates connections, over HTTP/1.1, of
// which a store has eight at most.
type WebhookNTLM struct {
	// UsernameSecret names a key with the user's name: name, DOMAIN\name or
	// name@domain.
	UsernameSecret metav1alpha1.SecretKeySelector `json:"usernameSecret"`

	// PasswordSecret names a key with the user's password.
	PasswordSecret metav1alpha1.SecretKeySelector `json:"passwordSecret"`
}

// WebhookClientTLS is a client certificate.
type WebhookClientTLS struct {
	// CertSecretRef names a key with the certificate and its chain, in PEM.
	CertSecretRef metav1alpha1.SecretKeySelector `json:"certSecretRef"`

	// KeySecretRef names a key with the private key, in PEM.
	KeySecretRef metav1alpha1.SecretKeySelector `json:"keySecretRef"`
}

// WebhookList is a list of Webhooks.
//
// +kubebuilder:object:root=true
type WebhookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Webhook `json:"items"`
}
