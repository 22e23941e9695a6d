package resolver

import (
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/identity/mtls"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
)

// defaultCAKey of a Secret with authorities.
const defaultCAKey = "ca.crt"

// Unregistered is the endpoint of an address that a flag allows.
func (p Policy) Unregistered(a address.Address) providerclient.Endpoint {
	if a.Socket() {
		return providerclient.Endpoint{Address: a, Trust: mtls.Trust{Socket: true, PeerUID: p.SocketUID}}
	}

	return providerclient.Endpoint{Address: a, Trust: mtls.Trust{ServerName: a.Host}}
}

// trust says how a registered provider and the operator know each other.
func (p Policy) trust(registration *v2alpha1.SecretProvider, a address.Address) (mtls.Trust, error) {
	tls := registration.Spec.TLS
	if tls == nil {
		tls = &v2alpha1.ProviderTLS{}
	}

	if a.Socket() {
		if tls.Mode != "" && tls.Mode != v2alpha1.TLSModeManaged {
			return mtls.Trust{}, deny(v2alpha1.ReasonInvalidRegistration, "spec.tls.mode is %s, but %s is a unix socket, which has no TLS: leave it out", tls.Mode, a)
		}

		return mtls.Trust{Socket: true, PeerUID: p.SocketUID}, nil
	}

	t := mtls.Trust{ServerName: a.Host}
	if tls.ServerName != "" {
		t.ServerName = tls.ServerName
	}

	switch tls.Mode {
	case "", v2alpha1.TLSModeManaged:
		t.Identity = pb.ProviderIdentityPrefix + registration.Name

		return t, nil
	case v2alpha1.TLSModeSPIFFE:
		if !p.SPIFFE {
			return mtls.Trust{}, deny(v2alpha1.ReasonInvalidRegistration, "spec.tls.mode is SPIFFE, and the operator's --spiffe-endpoint-socket is not set")
		}

		return mtls.Trust{SPIFFE: true, ServerID: tls.ServerID}, nil
	case v2alpha1.TLSModeCertManager, v2alpha1.TLSModeExternal:
	default:
		return mtls.Trust{}, deny(v2alpha1.ReasonInvalidRegistration, "spec.tls.mode %q is none of Managed, CertManager, External and SPIFFE", tls.Mode)
	}

	switch {
	case len(tls.CABundle) > 0:
		t.Authorities.Bundle = string(tls.CABundle)
	case tls.CASecretRef != nil:
		t.Authorities.Secret, t.Authorities.Key = p.own(tls.CASecretRef.Name), tls.CASecretRef.Key
		if t.Authorities.Key == "" {
			t.Authorities.Key = defaultCAKey
		}
	case tls.ClientCertificateSecretRef != nil && tls.Mode == v2alpha1.TLSModeCertManager:
		// cert-manager puts the issuer's beside each certificate.
		t.Authorities.Secret, t.Authorities.Key = p.own(tls.ClientCertificateSecretRef.Name), defaultCAKey
	case tls.Mode == v2alpha1.TLSModeCertManager:
		return mtls.Trust{}, deny(v2alpha1.ReasonInvalidRegistration,
			"spec.tls.mode is CertManager, and nothing says which authority to trust: set spec.tls.clientCertificateSecretRef, caSecretRef or caBundle")
	default:
		t.Authorities.System = true
	}

	if tls.ClientCertificateSecretRef != nil {
		t.Certificate = p.own(tls.ClientCertificateSecretRef.Name)
	}

	return t, nil
}

// own names an object of the operator's namespace.
func (p Policy) own(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: name}
}

// authenticate applies what a store says of how the operator shows itself.
func (r *Binder) authenticate(s *Store, b *Binding, registration *v2alpha1.SecretProvider, namespace string) error {
	auth := s.Spec.ProviderConfig.Auth
	if auth == nil {
		return nil
	}

	own := auth.ClientCertificate != nil && auth.ClientCertificate.SecretRef != nil

	switch {
	case b.Endpoint.Trust.Socket && own:
		return deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.auth.clientCertificate.secretRef: %s is a unix socket, which has no TLS", b.Endpoint.Address)
	case b.Endpoint.Trust.Socket && auth.SPIFFERef != nil:
		return deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.auth.spiffeRef: %s is a unix socket, which has no TLS", b.Endpoint.Address)
	case b.Endpoint.Trust.Socket && auth.ServiceAccountRef != nil:
		return deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.auth.serviceAccountRef: tokens travel over TLS only, and %s is a unix socket", b.Endpoint.Address)
	case b.Endpoint.Trust.Identity != "" && (own || auth.SPIFFERef != nil):
		return deny(v2alpha1.ReasonInvalidProviderConfig,
			"spec.providerConfig.auth: SecretProvider %q is in spec.tls.mode Managed, and its provider accepts the operator's own certificate only: leave clientCertificate.secretRef and spiffeRef out", b.Provider)
	case registration != nil && !b.Endpoint.Trust.SPIFFE && auth.SPIFFERef != nil:
		// The store must not define the identity of the provider.
		return deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.auth.spiffeRef: SecretProvider %q is not in spec.tls.mode SPIFFE: leave it out", b.Provider)
	case b.Endpoint.Trust.SPIFFE && own:
		return deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.auth.clientCertificate.secretRef: SecretProvider %q is in spec.tls.mode SPIFFE", b.Provider)
	}

	if own {
		b.Endpoint.Trust.Certificate = types.NamespacedName{Namespace: namespace, Name: auth.ClientCertificate.SecretRef.Name}
	}

	if auth.SPIFFERef != nil {
		if !r.policy.SPIFFE {
			return deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.auth.spiffeRef: the operator's --spiffe-endpoint-socket is not set")
		}

		if err := spiffe(b, auth.SPIFFERef.ServerID); err != nil {
			return err
		}
	}

	if auth.ServiceAccountRef == nil {
		return nil
	}

	return caller(b, auth.ServiceAccountRef, registration, namespace)
}

// spiffe sets a binding to use SPIFFE identities. A store may say who the
// provider must be where its registration does not.
func spiffe(b *Binding, serverID string) error {
	registered := b.Endpoint.Trust.ServerID

	// The address alone must not decide who gets a secret's key, or a token.
	if !b.Endpoint.Trust.SPIFFE && serverID == "" {
		return deny(v2alpha1.ReasonInvalidProviderConfig,
			"spec.providerConfig.auth.spiffeRef.serverID is needed: no SecretProvider in spec.tls.mode SPIFFE says who the provider is")
	}

	if registered != "" && serverID != "" && registered != serverID {
		return deny(v2alpha1.ReasonInvalidProviderConfig,
			"spec.providerConfig.auth.spiffeRef.serverID is %q, that of SecretProvider %q is %q: leave it out", serverID, b.Provider, registered)
	}

	if registered == "" && serverID != "" {
		b.Endpoint.Trust.ServerID, b.Endpoint.Trust.OwnDomain = serverID, true
	}

	b.Endpoint.Trust.SPIFFE = true

	return nil
}

// caller says whose token a binding's calls carry.
func caller(b *Binding, ref *v2alpha1.ServiceAccountRef, registration *v2alpha1.SecretProvider, namespace string) error {
	b.Caller = token.Identity{Name: ref.Name, Audience: ref.Audience}

	if ref.Name != "" {
		b.Caller.Namespace = namespace
	}

	switch {
	case registration == nil && ref.Audience == "":
		return deny(v2alpha1.ReasonInvalidProviderConfig,
			"spec.providerConfig.auth.serviceAccountRef.audience is needed: no SecretProvider has the address, so that nothing says what the provider's audience is")
	case ref.Audience == "":
		b.Caller.Audience = pb.ProviderIdentityPrefix + registration.Name
	case b.Caller.Own():
		// A tenant would choose the audience of the operator's own identity.
		return deny(v2alpha1.ReasonInvalidProviderConfig,
			"spec.providerConfig.auth.serviceAccountRef.audience goes with a name: a token of the operator's own ServiceAccount is for the provider's own audience only")
	}

	return nil
}
