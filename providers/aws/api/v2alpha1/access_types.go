package v2alpha1

import (
	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
)

// RoleARN is the ARN of an IAM role.
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:Pattern=`^arn:[a-z0-9-]+:iam::[0-9]{12}:role/[a-zA-Z0-9_+=,.@/-]+$`
type RoleARN string

// AWSAccess is the region, the identity and the scope of requests.
// +kubebuilder:validation:XValidation:rule="has(self.role) || !(has(self.externalID) || has(self.sessionTags) || has(self.transitiveTagKeys))",message="externalID, sessionTags and transitiveTagKeys belong to role: set role"
type AWSAccess struct {
	// Region of the service, such as eu-central-1.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]{2,5}(-[a-z]+)+-[0-9]+$`
	Region string `json:"region"`

	// Auth is the login. Absent means the provider's own identity, if the provider
	// allows that for the namespace.
	// +optional
	Auth AWSAuth `json:"auth,omitzero"`

	// AdditionalRoles are assumed in this order, before role.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	AdditionalRoles []RoleARN `json:"additionalRoles,omitempty"`

	// Role to assume last. Absent means that requests are made as the identity of
	// the login.
	// +optional
	Role RoleARN `json:"role,omitempty"`

	// ExternalID that role's trust policy requires.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=1224
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9_+=,.@:/-]+$`
	ExternalID string `json:"externalID,omitempty"`

	// SessionTags of the session in role.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=50
	SessionTags []Tag `json:"sessionTags,omitempty"`

	// TransitiveTagKeys are the keys of session tags that a role which is
	// assumed from role inherits.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=128
	TransitiveTagKeys []string `json:"transitiveTagKeys,omitempty"`

	// Prefix that is prepended to each key: key db with prefix /team-a/ is
	// /team-a/db. Searches stay below it. It is no access control, which is IAM's.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Prefix string `json:"prefix,omitempty"`

	// RequestsPerSecond bounds the calls that each process of the provider makes
	// for the config. Absent means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	RequestsPerSecond int `json:"requestsPerSecond,omitempty"`
}

// Tag of a session.
type Tag struct {
	// Key of the tag.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Key string `json:"key"`

	// Value of the tag.
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value"`
}

// AWSAuth is the login. At most one method is set; none means the
// provider's own identity.
// +kubebuilder:validation:XValidation:rule="!(has(self.secretRef) && has(self.jwt))",message="set one of secretRef and jwt"
type AWSAuth struct {
	// SecretRef names an access key.
	// +optional
	SecretRef *AWSAuthSecretRef `json:"secretRef,omitempty"`

	// JWT logs in with a ServiceAccount's token.
	// +optional
	JWT *AWSAuthJWT `json:"jwt,omitempty"`
}

// AWSAuthSecretRef names the parts of an access key.
type AWSAuthSecretRef struct {
	// AccessKeyIDSecretRef names a key with the access key's id.
	AccessKeyIDSecretRef metav1alpha1.SecretKeySelector `json:"accessKeyIDSecretRef"`

	// SecretAccessKeySecretRef names a key with the access key's secret part.
	SecretAccessKeySecretRef metav1alpha1.SecretKeySelector `json:"secretAccessKeySecretRef"`

	// SessionTokenSecretRef names a key with the session token of a temporary
	// access key.
	// +optional
	SessionTokenSecretRef *metav1alpha1.SecretKeySelector `json:"sessionTokenSecretRef,omitempty"`
}

// AWSAuthJWT logs in to a role with a ServiceAccount's token, as "IAM roles for
// service accounts" does.
type AWSAuthJWT struct {
	// ServiceAccountRef names a ServiceAccount; its tokens have audience
	// sts.amazonaws.com unless the reference names others.
	ServiceAccountRef metav1alpha1.ServiceAccountSelector `json:"serviceAccountRef"`

	// Role that the token is exchanged for. ESO v1 reads it from the
	// ServiceAccount's annotation eks.amazonaws.com/role-arn, which providers do
	// not. The roles of spec.additionalRoles and spec.role are assumed
	// after it.
	Role RoleARN `json:"role"`
}
