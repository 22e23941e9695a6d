package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
)

// Kubernetes is the Secrets of one namespace, in this or another cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=kubernetes,singular=kubernetes,scope=Namespaced,categories={external-secrets}
// +kubebuilder:metadata:labels="external-secrets.io/component=provider"
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.server.url`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.remoteNamespace`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Kubernetes struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KubernetesSpec `json:"spec"`
}

// KubernetesSpec is the cluster, the namespace of the Secrets and the login.
type KubernetesSpec struct {
	Cluster `json:",inline"`

	// RemoteNamespace is where the Secrets are. Absent means default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
}

// Cluster is a cluster and the login to it: that of auth, or that of the kubeconfig
// of authRef.
// +kubebuilder:validation:XValidation:rule="has(self.auth) != has(self.authRef)",message="exactly one of auth and authRef must be set"
// +kubebuilder:validation:XValidation:rule="!(has(self.server) && has(self.authRef))",message="authRef names the server, too"
type Cluster struct {
	// Server is the API server. Absent means that of the cluster that the
	// provider runs in.
	// +optional
	Server *KubernetesServer `json:"server,omitempty"`

	// Auth is the login.
	// +optional
	Auth *KubernetesAuth `json:"auth,omitempty"`

	// AuthRef names a key with a kubeconfig. A kubeconfig that runs a program, reads
	// a file or does not verify certificates is refused.
	// +optional
	AuthRef *metav1alpha1.SecretKeySelector `json:"authRef,omitempty"`

	// RequestsPerSecond limits the requests to the API server through this config.
	// Absent means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	RequestsPerSecond *int32 `json:"requestsPerSecond,omitempty"`
}

// KubernetesServer is an API server.
// +kubebuilder:validation:XValidation:rule="!(has(self.caBundle) && has(self.caProvider))",message="set one of caBundle and caProvider"
type KubernetesServer struct {
	// URL of the API server, such as https://cluster.example.com:6443.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https://)?[^/?#\s@]+(/[^?#\s]*)?$`
	URL string `json:"url"`

	// CABundle is a PEM bundle that the server's certificate must chain to.
	// Without it and caProvider the system's authorities are used.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`

	// CAProvider names a Secret or ConfigMap with such a bundle.
	// +optional
	CAProvider *metav1alpha1.CASource `json:"caProvider,omitempty"`
}

// KubernetesAuth is the login. Exactly one method is set.
// +kubebuilder:validation:XValidation:rule="[has(self.serviceAccount), has(self.token), has(self.cert)].filter(set, set).size() == 1",message="exactly one of serviceAccount, token and cert must be set"
type KubernetesAuth struct {
	// ServiceAccount logs in with tokens that are requested for a
	// ServiceAccount of this cluster; they have the API server's own audience
	// unless the reference names others.
	// +optional
	ServiceAccount *metav1alpha1.ServiceAccountSelector `json:"serviceAccount,omitempty"`

	// Token logs in with a bearer token.
	// +optional
	Token *KubernetesToken `json:"token,omitempty"`

	// Cert logs in with a client certificate.
	// +optional
	Cert *KubernetesCert `json:"cert,omitempty"`
}

// KubernetesToken names a bearer token.
type KubernetesToken struct {
	// BearerToken names a key with the token.
	BearerToken metav1alpha1.SecretKeySelector `json:"bearerToken"`
}

// KubernetesCert names a client certificate.
type KubernetesCert struct {
	// ClientCert names a key with the certificate, in PEM.
	ClientCert metav1alpha1.SecretKeySelector `json:"clientCert"`

	// ClientKey names a key with its private key, in PEM.
	ClientKey metav1alpha1.SecretKeySelector `json:"clientKey"`
}

// KubernetesList is a list of Kubernetes configs.
//
// +kubebuilder:object:root=true
type KubernetesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Kubernetes `json:"items"`
}
