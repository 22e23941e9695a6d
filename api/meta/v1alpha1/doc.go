// Package v1alpha1 holds the small types that several API groups share:
// references from one object to a value in another of the same namespace.
// They carry no namespace on purpose: where a reference resolves is decided by
// the caller's authentication namespace, never by the tenant who writes it.
//
// +kubebuilder:object:generate=true
package v1alpha1
