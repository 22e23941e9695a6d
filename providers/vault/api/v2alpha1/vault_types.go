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
	// KVv1 stores one version of a secret.
	KVv1 KVVersion = "v1"
	// KVv2 stores several versions. It is the default.
	KVv2 KVVersion = "v2"
)

// VaultSpec is the server, the engine and the login.
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
	// Without it and caProvider the system's authorities are used.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`

	// CAProvider names a Secret or ConfigMap with such a bundle.
	// +optional
	CAProvider *metav1alpha1.CASource `json:"caProvider,omitempty"`

	// TLS is the client certificate, for a server that requires one.
	// +optional
	TLS *VaultClientTLS `json:"tls,omitempty"`

	// Headers of every request. Vault's own, which begin with X-Vault-, are not
	// allowed, except X-Vault-Inconsistent.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, !name.lowerAscii().startsWith('x-vault-') || name.lowerAscii() == 'x-vault-inconsistent')",message="Vault's own headers are set by other fields"
	Headers map[string]string `json:"headers,omitempty"`

	// ReadYourWrites makes reads return earlier writes, whichever node of a Vault
	// Enterprise cluster answers.
	// +optional
	ReadYourWrites bool `json:"readYourWrites,omitempty"`

	// ForwardInconsistent makes a node of a Vault Enterprise cluster that lags
	// behind forward requests to the active one, with readYourWrites.
	// +optional
	ForwardInconsistent bool `json:"forwardInconsistent,omitempty"`

	// Deletion says what a PushSecret that deletes does on an engine of version
	// 2: Destroy, the default, removes all versions and the metadata; SoftDelete
	// deletes the latest version, which Vault can restore.
	// +optional
	Deletion VaultDeletion `json:"deletion,omitempty"`

	// RequestsPerSecond limits the requests to the server through this config.
	// Absent means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	RequestsPerSecond *int32 `json:"requestsPerSecond,omitempty"`

	// Auth is the login.
	Auth VaultAuth `json:"auth"`
}

// VaultDeletion of a secret.
// +kubebuilder:validation:Enum=Destroy;SoftDelete
type VaultDeletion string

const (
	// VaultDestroy removes all versions and the metadata.
	VaultDestroy VaultDeletion = "Destroy"
	// VaultSoftDelete deletes the latest version.
	VaultSoftDelete VaultDeletion = "SoftDelete"
)

// VaultClientTLS names a client certificate.
type VaultClientTLS struct {
	// CertSecretRef names a key with the certificate, in PEM.
	CertSecretRef metav1alpha1.SecretKeySelector `json:"certSecretRef"`

	// KeySecretRef names a key with its private key, in PEM.
	KeySecretRef metav1alpha1.SecretKeySelector `json:"keySecretRef"`
}

// VaultAuth is the login. Exactly one method is set.
// +kubebuilder:validation:XValidation:rule="[has(self.tokenSecretRef), has(self.appRole), has(self.kubernetes), has(self.ldap), has(self.jwt), has(self.cert), has(self.userPass), has(self.iam), has(self.gcp)].filter(set, set).size() == 1",message="exactly one of tokenSecretRef, appRole, kubernetes, ldap, jwt, cert, userPass, iam and gcp must be set"
type VaultAuth struct {
	// Namespace of Vault Enterprise to log in to. Absent means that of the
	// engine.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Namespace string `json:"namespace,omitempty"`

	// TokenSecretRef names a key with a token.
	// +optional
	TokenSecretRef *metav1alpha1.SecretKeySelector `json:"tokenSecretRef,omitempty"`

	// AppRole logs in with a role's id and a secret id.
	// +optional
	AppRole *VaultAppRoleAuth `json:"appRole,omitempty"`

	// Kubernetes logs in with a ServiceAccount's token.
	// +optional
	Kubernetes *VaultKubernetesAuth `json:"kubernetes,omitempty"`

	// LDAP logs in with a user's name and password.
	// +optional
	LDAP *VaultPasswordAuth `json:"ldap,omitempty"`

	// JWT logs in with a JSON web token.
	// +optional
	JWT *VaultJWTAuth `json:"jwt,omitempty"`

	// Cert logs in with a TLS certificate.
	// +optional
	Cert *VaultCertAuth `json:"cert,omitempty"`

	// UserPass logs in with a user's name and password.
	// +optional
	UserPass *VaultPasswordAuth `json:"userPass,omitempty"`

	// IAM logs in with an identity of AWS.
	// +optional
	IAM *VaultIAMAuth `json:"iam,omitempty"`

	// GCP logs in with a service account of Google Cloud.
	// +optional
	GCP *VaultGCPAuth `json:"gcp,omitempty"`
}

// VaultAppRoleAuth logs in with the id of a role, given here or in a Secret,
// and a secret id.
// +kubebuilder:validation:XValidation:rule="has(self.roleId) != has(self.roleRef)",message="exactly one of roleId and roleRef must be set"
type VaultAppRoleAuth struct {
	// Path where the auth method is mounted. Absent means approle.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// RoleID of the role.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	RoleID string `json:"roleId,omitempty"`

	// RoleRef names a key with the id of the role.
	// +optional
	RoleRef *metav1alpha1.SecretKeySelector `json:"roleRef,omitempty"`

	// SecretRef names a key with the secret id.
	SecretRef metav1alpha1.SecretKeySelector `json:"secretRef"`
}

// VaultKubernetesAuth logs in with a ServiceAccount's token: that of
// serviceAccountRef, or that in secretRef; with neither that of the provider's
// own Pod, if the provider allows that for the namespace.
// +kubebuilder:validation:XValidation:rule="!(has(self.serviceAccountRef) && has(self.secretRef))",message="at most one of serviceAccountRef and secretRef may be set"
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

// VaultPasswordAuth logs in with a user's name and password.
type VaultPasswordAuth struct {
	// Path where the auth method is mounted. Absent means ldap or userpass.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Username to log in with.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Username string `json:"username"`

	// SecretRef names a key with the password.
	SecretRef metav1alpha1.SecretKeySelector `json:"secretRef"`
}

// VaultJWTAuth logs in with a JSON web token: that in secretRef, or one that is
// requested for a ServiceAccount.
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.kubernetesServiceAccountToken)",message="exactly one of secretRef and kubernetesServiceAccountToken must be set"
type VaultJWTAuth struct {
	// Path where the auth method is mounted. Absent means jwt.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Role to log in to. Absent means the method's default role.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Role string `json:"role,omitempty"`

	// SecretRef names a key with a token.
	// +optional
	SecretRef *metav1alpha1.SecretKeySelector `json:"secretRef,omitempty"`

	// KubernetesServiceAccountToken requests a token of a ServiceAccount.
	// +optional
	KubernetesServiceAccountToken *VaultServiceAccountToken `json:"kubernetesServiceAccountToken,omitempty"`
}

// VaultServiceAccountToken requests a token of a ServiceAccount.
type VaultServiceAccountToken struct {
	// ServiceAccountRef names the ServiceAccount; its tokens have audience vault
	// unless the reference names others.
	ServiceAccountRef metav1alpha1.ServiceAccountSelector `json:"serviceAccountRef"`
}

// VaultCertAuth logs in with a TLS certificate, which secures the connection
// for everything else, too.
type VaultCertAuth struct {
	// Path where the auth method is mounted. Absent means cert.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// VaultRole is the name of the certificate role. Absent means the first one that
	// matches.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	VaultRole string `json:"vaultRole,omitempty"`

	// ClientCert names a key with the certificate, in PEM.
	ClientCert metav1alpha1.SecretKeySelector `json:"clientCert"`

	// SecretRef names a key with its private key, in PEM.
	SecretRef metav1alpha1.SecretKeySelector `json:"secretRef"`
}

// VaultIAMAuth logs in with an identity of AWS: static keys, a role by a
// ServiceAccount's token, or with neither the provider's own, if the provider
// allows that for the namespace.
// +kubebuilder:validation:XValidation:rule="!(has(self.secretRef) && has(self.jwt))",message="at most one of secretRef and jwt may be set"
// +kubebuilder:validation:XValidation:rule="!has(self.jwt) || has(self.role)",message="jwt needs the role that it assumes"
type VaultIAMAuth struct {
	// Path where the auth method is mounted. Absent means aws.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// VaultRole to log in to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	VaultRole string `json:"vaultRole"`

	// Region of the STS that proves the identity. Absent means us-east-1.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,64}$`
	Region string `json:"region,omitempty"`

	// Role is the ARN of a role to assume: with the token if jwt is set, else with
	// the identity.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Role string `json:"role,omitempty"`

	// ExternalID that the role requires.
	// +optional
	// +kubebuilder:validation:MaxLength=1224
	ExternalID string `json:"externalID,omitempty"`

	// VaultAWSIAMServerID is the value of the header that the server requires, so
	// that a request that was signed for another server is not accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	VaultAWSIAMServerID string `json:"vaultAwsIamServerID,omitempty"`

	// SecretRef names keys with static credentials.
	// +optional
	SecretRef *VaultAWSKeys `json:"secretRef,omitempty"`

	// JWT assumes the role with a ServiceAccount's token.
	// +optional
	JWT *VaultAWSToken `json:"jwt,omitempty"`
}

// VaultAWSKeys are static credentials.
type VaultAWSKeys struct {
	// AccessKeyIDSecretRef names a key with the id of the access key.
	AccessKeyIDSecretRef metav1alpha1.SecretKeySelector `json:"accessKeyIDSecretRef"`

	// SecretAccessKeySecretRef names a key with the secret access key.
	SecretAccessKeySecretRef metav1alpha1.SecretKeySelector `json:"secretAccessKeySecretRef"`

	// SessionTokenSecretRef names a key with the session token, of temporary
	// credentials.
	// +optional
	SessionTokenSecretRef *metav1alpha1.SecretKeySelector `json:"sessionTokenSecretRef,omitempty"`
}

// VaultAWSToken is a ServiceAccount's token that AWS accepts.
type VaultAWSToken struct {
	// ServiceAccountRef names the ServiceAccount; its tokens have audience
	// sts.amazonaws.com unless the reference names others.
	ServiceAccountRef metav1alpha1.ServiceAccountSelector `json:"serviceAccountRef"`
}

// VaultGCPAuth logs in with a service account of Google Cloud: with its key, or as
// a ServiceAccount that it trusts, or with neither as the instance that the
// provider runs on, if the provider allows that for the namespace.
// +kubebuilder:validation:XValidation:rule="!(has(self.secretRef) && has(self.workloadIdentity))",message="at most one of secretRef and workloadIdentity may be set"
type VaultGCPAuth struct {
	// Path where the auth method is mounted. Absent means gcp.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// Role to log in to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Role string `json:"role"`

	// SecretRef names the key of a service account.
	// +optional
	SecretRef *VaultGCPKey `json:"secretRef,omitempty"`

	// WorkloadIdentity names a ServiceAccount that the service account trusts.
	// +optional
	WorkloadIdentity *VaultGCPWorkloadIdentity `json:"workloadIdentity,omitempty"`
}

// VaultGCPWorkloadIdentity logs in as a service account of Google Cloud that
// trusts a ServiceAccount: one of a cluster of GKE with Workload Identity, or of
// any cluster by a provider of a workload identity pool.
// +kubebuilder:validation:XValidation:rule="has(self.audience) != has(self.cluster)",message="exactly one of audience and cluster must be set"
type VaultGCPWorkloadIdentity struct {
	// ServiceAccountRef names the ServiceAccount. Its tokens are for the pool,
	// unless the reference names other audiences.
	ServiceAccountRef metav1alpha1.ServiceAccountSelector `json:"serviceAccountRef"`

	// ServiceAccountEmail of the service account, which allows the ServiceAccount
	// to act as it (roles/iam.workloadIdentityUser), and itself to sign
	// (roles/iam.serviceAccountTokenCreator).
	// +kubebuilder:validation:MaxLength=320
	// +kubebuilder:validation:Pattern=`^[a-z0-9.@_-]+$`
	ServiceAccountEmail string `json:"serviceAccountEmail"`

	// Audience is the provider of a workload identity pool:
	// //iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^//iam\.googleapis\.com/`
	Audience string `json:"audience,omitempty"`

	// Cluster of GKE that the ServiceAccount is of.
	// +optional
	Cluster *VaultGKECluster `json:"cluster,omitempty"`
}

// VaultGKECluster is a cluster of Google Kubernetes Engine.
type VaultGKECluster struct {
	// ProjectID of the cluster's project.
	// +kubebuilder:validation:Pattern=`^[a-z0-9.:-]{1,100}$`
	ProjectID string `json:"projectID"`

	// Location of the cluster: a region or a zone.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,100}$`
	Location string `json:"location"`

	// Name of the cluster.
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]{1,100}$`
	Name string `json:"name"`
}

// VaultGCPKey is the key of a service account.
type VaultGCPKey struct {
	// SecretAccessKeySecretRef names a key with the service account's key, the
	// JSON file of Google Cloud.
	SecretAccessKeySecretRef metav1alpha1.SecretKeySelector `json:"secretAccessKeySecretRef"`
}

// VaultList is a list of Vaults.
//
// +kubebuilder:object:root=true
type VaultList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Vault `json:"items"`
}
