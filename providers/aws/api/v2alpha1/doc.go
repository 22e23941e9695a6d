// Package v2alpha1 is the config of the AWS provider.
//
// +kubebuilder:object:generate=true
// +groupName=provider.secretstore.external-secrets.io
package v2alpha1
