package secretprovider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/ca"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
)

// fieldManager under which certificates are written.
const fieldManager = "external-secrets-certificates"

// Annotations of a certificate's Secret, by which its state is known without
// reading it.
const (
	annotationRenewAt = "secretstore.external-secrets.io/renew-at"
	annotationCA      = "secretstore.external-secrets.io/ca"
	annotationHosts   = "secretstore.external-secrets.io/hosts"
)

// certificates writes the Secrets that hold providers' certificates.
type certificates struct {
	// client reads from the API server itself.
	client    client.Client
	authority *ca.Authority
}

// ensure makes the registration's Secret hold a certificate that is not due
// for renewal, and gives the time until it is.
func (c *certificates) ensure(ctx context.Context, registration *v2alpha1.SecretProvider, endpoint providerclient.Endpoint) (time.Duration, error) {
	name, err := secretName(registration, endpoint)
	if err != nil {
		return 0, err
	}

	hosts := []string{endpoint.Address.Host}
	if endpoint.Trust.ServerName != endpoint.Address.Host {
		hosts = append(hosts, endpoint.Trust.ServerName)
	}

	current := &metav1.PartialObjectMetadata{}
	current.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))

	err = c.client.Get(ctx, name, current)

	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return 0, fmt.Errorf("cannot read the metadata of Secret %s: %w", name, err)
	case !metav1.IsControlledBy(current, registration):
		return 0, fmt.Errorf("cannot write the certificate: Secret %s exists and is not this SecretProvider's; delete it or set spec.tls.certificateSecretRef", name)
	default:
		if rest, err := c.rest(ctx, current, hosts); err != nil || rest > 0 {
			return rest, err
		}
	}

	issued, err := c.authority.IssueServer(ctx, registration.Name, hosts)
	if err != nil {
		return 0, err
	}

	secret := corev1apply.Secret(name.Name, name.Namespace).
		WithLabels(map[string]string{"external-secrets.io/component": "provider-certificate"}).
		WithAnnotations(map[string]string{
			annotationRenewAt: issued.RenewAt.UTC().Format(time.RFC3339Nano),
			annotationCA:      issued.Fingerprint,
			annotationHosts:   strings.Join(hosts, ","),
		}).
		WithOwnerReferences(metav1apply.OwnerReference().
			WithAPIVersion(v2alpha1.GroupVersion.String()).WithKind(v2alpha1.SecretProviderKind).
			WithName(registration.Name).WithUID(registration.UID).WithController(true)).
		WithType(corev1.SecretTypeTLS).
		WithData(map[string][]byte{"tls.crt": issued.Certificate, "tls.key": issued.Key, "ca.crt": issued.CA})

	err = c.client.Apply(ctx, secret, client.FieldOwner(fieldManager), client.ForceOwnership)

	switch {
	case apierrors.IsNotFound(err):
		return 0, fmt.Errorf("cannot write the certificate: namespace %q does not exist", name.Namespace)
	case err != nil:
		return 0, fmt.Errorf("cannot write the certificate to Secret %s: %w", name, err)
	}

	return issued.RenewAt.Sub(c.authority.Now()), nil
}

// rest is how long a certificate may stay as it is; 0 when it must be issued
// anew.
func (c *certificates) rest(ctx context.Context, current *metav1.PartialObjectMetadata, hosts []string) (time.Duration, error) {
	fingerprint, err := c.authority.Fingerprint(ctx)
	if err != nil {
		return 0, err
	}

	renewAt, err := time.Parse(time.RFC3339Nano, current.Annotations[annotationRenewAt])
	if err != nil || current.Annotations[annotationCA] != fingerprint ||
		!slices.Equal(strings.Split(current.Annotations[annotationHosts], ","), hosts) {
		return 0, nil //nolint:nilerr // an annotation that cannot be read is one that must be written
	}

	return max(renewAt.Sub(c.authority.Now()), 0), nil
}

// secretName says where a registration's certificate goes.
func secretName(registration *v2alpha1.SecretProvider, endpoint providerclient.Endpoint) (client.ObjectKey, error) {
	name := client.ObjectKey{Namespace: endpoint.Address.ServiceNamespace(), Name: registration.Name + "-tls"}

	if tls := registration.Spec.TLS; tls != nil && tls.CertificateSecretRef != nil {
		name.Namespace = tls.CertificateSecretRef.Namespace
		if tls.CertificateSecretRef.Name != "" {
			name.Name = tls.CertificateSecretRef.Name
		}
	}

	if name.Namespace == "" {
		return name, errors.New("cannot determine the provider's namespace from its address, which is not that of a Service: set spec.tls.certificateSecretRef.namespace")
	}

	return name, nil
}
