package provider

import (
	"context"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
)

// References resolves a config's references, in the authentication namespace
// and nowhere else. Its errors are of this package and name the object and the
// namespace.
type References interface {
	// SecretKey gives the value of one key of a Secret.
	SecretKey(ctx context.Context, ref metav1alpha1.SecretKeySelector) ([]byte, error)

	// CABundle gives the PEM bundle that a source names.
	CABundle(ctx context.Context, source metav1alpha1.CASource) ([]byte, error)

	// ServiceAccountToken requests a token of a ServiceAccount. Audiences of
	// the selector win over the ones given; the token lives ten minutes.
	ServiceAccountToken(ctx context.Context, ref metav1alpha1.ServiceAccountSelector, audiences ...string) (string, error)

	// Namespace in which references resolve.
	Namespace() string
}
