// Package v1 is the API of ExternalSecret, with every field of the kind that
// External Secrets Operator 2.9 serves, and secretStoreRef.apiVersion besides.
// Its labels, annotations, finalizers and reasons are those that existing
// objects carry.
//
// +kubebuilder:object:generate=true
// +groupName=external-secrets.io
package v1
