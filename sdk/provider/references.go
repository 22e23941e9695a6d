package provider

import (
	"context"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
)

// References resolves a config's references, in the authentication namespace only.
// Its errors are of this package, and name the object and the namespace.
type References interface {
	// SecretKey returns the value of one key of a Secret.
	SecretKey(ctx context.Context, ref metav1alpha1.SecretKeySelector) ([]byte, error)

	// CABundle returns the PEM bundle that a source names.
	CABundle(ctx context.Context, source metav1alpha1.CASource) ([]byte, error)

	// ServiceAccountToken requests a token of a ServiceAccount, which expires after
	// ten minutes. The audiences of the selector, if there are any, replace the
	// given ones.
	ServiceAccountToken(ctx context.Context, ref metav1alpha1.ServiceAccountSelector, audiences ...string) (string, error)

	// Namespace returns the namespace in which references resolve.
	Namespace() string
}
