// Package v2alpha1 is the configs of the Kubernetes provider.
//
// +kubebuilder:object:generate=true
// +groupName=provider.secretstore.external-secrets.io
package v2alpha1
