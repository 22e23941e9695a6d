// Package v2alpha1 is the API of SecretStore, ClusterSecretStore and
// SecretProvider: which provider process serves which secrets, to whom, and
// where that process listens.
//
// +kubebuilder:object:generate=true
// +groupName=secretstore.external-secrets.io
package v2alpha1
