package resolver

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/identity/mtls"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/store"
)

const vaultAddress = "dns:///vault.secrets.svc:8443"

// registered is a registration with settings of TLS.
func registered(tls *v2alpha1.ProviderTLS) *v2alpha1.SecretProvider {
	return registration("vault", vaultAddress, func(r *v2alpha1.SecretProvider) { r.Spec.TLS = tls })
}

func TestTrustOfARegistration(t *testing.T) {
	t.Parallel()

	secret := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "eso", Name: name} }

	for _, c := range []struct {
		why     string
		tls     *v2alpha1.ProviderTLS
		address string
		policy  Policy
		want    mtls.Trust
		denied  string
	}{
		{
			why:  "the operator's own certificates pin the provider's identity",
			want: mtls.Trust{ServerName: "vault.secrets.svc", Identity: "spiffe://external-secrets.io/provider/vault"},
		},
		{
			why: "another name in the certificate", tls: &v2alpha1.ProviderTLS{ServerName: "vault.example.com"},
			want: mtls.Trust{ServerName: "vault.example.com", Identity: "spiffe://external-secrets.io/provider/vault"},
		},
		{
			why: "cert-manager's authority stands beside the certificate that it issued to the operator",
			tls: &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeCertManager, ClientCertificateSecretRef: &v2alpha1.ObjectName{Name: "operator-tls"}},
			want: mtls.Trust{
				ServerName: "vault.secrets.svc", Certificate: secret("operator-tls"),
				Authorities: mtls.Authorities{Secret: secret("operator-tls"), Key: "ca.crt"},
			},
		},
		{
			why:    "an authority must be named where cert-manager issues",
			tls:    &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeCertManager},
			denied: "nothing says which authority to trust",
		},
		{
			why: "an authority in a Secret of the operator's namespace",
			tls: &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeExternal, CASecretRef: &v2alpha1.CASecretReference{Name: "ca", Key: "bundle.pem"}},
			want: mtls.Trust{
				ServerName: "vault.secrets.svc", Authorities: mtls.Authorities{Secret: secret("ca"), Key: "bundle.pem"},
			},
		},
		{
			why:  "an authority that stands in the registration",
			tls:  &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeExternal, CABundle: []byte("PEM")},
			want: mtls.Trust{ServerName: "vault.secrets.svc", Authorities: mtls.Authorities{Bundle: "PEM"}},
		},
		{
			why:  "the system's CAs, if another issuer is used and no CA is configured",
			tls:  &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeExternal},
			want: mtls.Trust{ServerName: "vault.secrets.svc", Authorities: mtls.Authorities{System: true}},
		},
		{
			why: "SPIFFE", tls: &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE, ServerID: "spiffe://corp/vault"}, policy: Policy{SPIFFE: true},
			want: mtls.Trust{SPIFFE: true, ServerID: "spiffe://corp/vault"},
		},
		{
			why: "SPIFFE needs a Workload API", tls: &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE},
			denied: "--spiffe-endpoint-socket is not set",
		},
		{
			why: "a socket is known by its user", address: "unix:///run/eso/vault.sock", policy: Policy{SocketDir: "/run/eso", SocketUID: 7},
			want: mtls.Trust{Socket: true, PeerUID: 7},
		},
		{
			why: "a socket has no certificates", address: "unix:///run/eso/vault.sock", policy: Policy{SocketDir: "/run/eso"},
			tls:    &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeExternal},
			denied: "is a unix socket, which has no TLS",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			r := registered(c.tls)
			if c.address != "" {
				r.Spec.Address = c.address
			}

			c.policy.Namespace = "eso"
			endpoint, err := NewBinder(nil, nil, nil, c.policy).Endpoint(r)

			if c.denied != "" {
				denial, ok := errors.AsType[*store.DenialError](err)
				if !ok || !strings.Contains(denial.Message, c.denied) {
					t.Errorf("err = %v; want %q", err, c.denied)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(c.want, endpoint.Trust); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()

	named := func(name string) *v2alpha1.ClientCertificate {
		return &v2alpha1.ClientCertificate{SecretRef: &v2alpha1.ObjectName{Name: name}}
	}
	external := &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeExternal}
	spiffe := &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE}

	for _, c := range []struct {
		why     string
		auth    v2alpha1.ProviderAuth
		tls     *v2alpha1.ProviderTLS
		address string
		policy  Policy
		want    func(*mtls.Trust) // of the registration's own
		caller  token.Identity
		denied  string
	}{
		{why: "an empty certificate is the operator's own", auth: v2alpha1.ProviderAuth{ClientCertificate: &v2alpha1.ClientCertificate{}}},
		{
			why: "a certificate of the store's own is read in its namespace", auth: v2alpha1.ProviderAuth{ClientCertificate: named("mine")}, tls: external,
			want: func(t *mtls.Trust) { t.Certificate = types.NamespacedName{Namespace: "tenant", Name: "mine"} },
		},
		{
			why: "a provider of the operator's authority accepts no other", auth: v2alpha1.ProviderAuth{ClientCertificate: named("mine")},
			denied: "accepts the operator's own certificate only",
		},
		{
			why: "nor SPIFFE", auth: v2alpha1.ProviderAuth{SPIFFERef: &v2alpha1.SPIFFERef{}}, policy: Policy{SPIFFE: true},
			denied: "accepts the operator's own certificate only",
		},
		{
			why: "who the provider is, is not a store's to say", auth: v2alpha1.ProviderAuth{SPIFFERef: &v2alpha1.SPIFFERef{ServerID: "spiffe://corp/vault"}},
			tls: external, policy: Policy{SPIFFE: true}, denied: "is not in spec.tls.mode SPIFFE",
		},
		{
			why:  "a store narrows what the registration leaves open, inside of the operator's trust domain",
			auth: v2alpha1.ProviderAuth{SPIFFERef: &v2alpha1.SPIFFERef{ServerID: "spiffe://corp/vault"}}, tls: spiffe, policy: Policy{SPIFFE: true},
			want: func(t *mtls.Trust) { t.ServerID, t.OwnDomain = "spiffe://corp/vault", true },
		},
		{
			why:  "a store does not name another server than its registration",
			auth: v2alpha1.ProviderAuth{SPIFFERef: &v2alpha1.SPIFFERef{ServerID: "spiffe://corp/evil"}},
			tls:  &v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE, ServerID: "spiffe://corp/vault"}, policy: Policy{SPIFFE: true},
			denied: "leave it out",
		},
		{
			why: "a certificate goes with no SPIFFE registration", auth: v2alpha1.ProviderAuth{ClientCertificate: named("mine")}, tls: spiffe, policy: Policy{SPIFFE: true},
			denied: "is in spec.tls.mode SPIFFE",
		},
		{
			why: "a ServiceAccount of the config's namespace, for the provider's audience", auth: v2alpha1.ProviderAuth{ServiceAccountRef: &v2alpha1.ServiceAccountRef{Name: "reader"}},
			caller: token.Identity{Namespace: "tenant", Name: "reader", Audience: "spiffe://external-secrets.io/provider/vault"},
		},
		{
			why: "the operator's own ServiceAccount", auth: v2alpha1.ProviderAuth{ServiceAccountRef: &v2alpha1.ServiceAccountRef{}},
			caller: token.Identity{Audience: "spiffe://external-secrets.io/provider/vault"},
		},
		{
			why: "an audience of its own", auth: v2alpha1.ProviderAuth{ServiceAccountRef: &v2alpha1.ServiceAccountRef{Name: "reader", Audience: "corp"}},
			caller: token.Identity{Namespace: "tenant", Name: "reader", Audience: "corp"},
		},
		{
			why: "a tenant does not choose for whom the operator vouches", auth: v2alpha1.ProviderAuth{ServiceAccountRef: &v2alpha1.ServiceAccountRef{Audience: "https://kubernetes.default.svc"}},
			denied: "for the provider's own audience only",
		},
		{
			why: "no token over a socket", auth: v2alpha1.ProviderAuth{ServiceAccountRef: &v2alpha1.ServiceAccountRef{Name: "reader"}},
			address: "unix:///run/eso/vault.sock", policy: Policy{SocketDir: "/run/eso"},
			denied: "tokens travel over TLS only",
		},
		{
			why: "no certificate over a socket", auth: v2alpha1.ProviderAuth{ClientCertificate: named("mine")},
			address: "unix:///run/eso/vault.sock", policy: Policy{SocketDir: "/run/eso"},
			denied: "is a unix socket, which has no TLS",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			r := registered(c.tls)
			if c.address != "" {
				r.Spec.Address = c.address
			}

			bindings := binder(t, c.policy, []client.Object{r, config("tenant")}...)

			b, err := bindings.Bind(t.Context(), secretStore("tenant", func(s *v2alpha1.StoreSpec) { s.ProviderConfig.Auth = &c.auth }))
			if c.denied != "" {
				denial, ok := errors.AsType[*store.DenialError](err)
				if !ok || !strings.Contains(denial.Message, c.denied) {
					t.Errorf("err = %v; want %q", err, c.denied)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}

			own, err := bindings.Endpoint(r)
			if err != nil {
				t.Fatal(err)
			}

			if c.want != nil {
				c.want(&own.Trust)
			}

			if diff := cmp.Diff(own.Trust, b.Endpoint.Trust); diff != "" {
				t.Errorf("trust (-want +got):\n%s", diff)
			}

			if diff := cmp.Diff(c.caller, b.Caller); diff != "" {
				t.Errorf("caller (-want +got):\n%s", diff)
			}
		})
	}
}

// Of an address that only a flag allows nothing says who the provider is.
func TestSPIFFEAtAnUnregisteredAddress(t *testing.T) {
	t.Parallel()

	a, err := address.Parse("10.0.0.1:8443")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		id, denied string
		policy     Policy
	}{
		{"", "spiffeRef.serverID is needed", Policy{SPIFFE: true}},
		{"spiffe://corp/vault", "--spiffe-endpoint-socket is not set", Policy{}},
		{"spiffe://corp/vault", "", Policy{SPIFFE: true}},
	} {
		c.policy.Allowed = []address.Address{a}

		b, err := binder(t, c.policy, config("tenant")).Bind(t.Context(), secretStore("tenant", func(s *v2alpha1.StoreSpec) {
			s.ProviderConfig.Address = "10.0.0.1:8443"
			s.ProviderConfig.Auth = &v2alpha1.ProviderAuth{SPIFFERef: &v2alpha1.SPIFFERef{ServerID: c.id}}
		}))
		if (err == nil) != (c.denied == "") || (err != nil && !strings.Contains(err.Error(), c.denied)) {
			t.Errorf("%q: err = %v", c.id, err)
		}

		if err == nil && (!b.Endpoint.Trust.SPIFFE || b.Endpoint.Trust.ServerID != c.id || !b.Endpoint.Trust.OwnDomain) {
			t.Errorf("%q: %+v", c.id, b.Endpoint.Trust)
		}
	}
}

// The kinds in a registration have precedence over those that providers report,
// and the namespaces of a registration over a flag.
func TestRegistrationsComeFirst(t *testing.T) {
	t.Parallel()

	claims := registration("impostor", "impostor.ns.svc:1", nil)
	listed := registration("vault", vaultAddress, func(r *v2alpha1.SecretProvider) { r.Spec.Kinds = []v2alpha1.ProviderKind{{Kind: "Vault"}} })

	b, err := binder(t, Policy{}, claims, listed, config("tenant")).Bind(t.Context(), secretStore("tenant", nil))
	if err != nil || b.Provider != "vault" {
		t.Errorf("bound to %+v, %v", b, err)
	}

	a, err := address.Parse(vaultAddress)
	if err != nil {
		t.Fatal(err)
	}

	closed := registration("vault", vaultAddress, func(r *v2alpha1.SecretProvider) { r.Spec.AllowedNamespaces = []string{"platform"} })

	_, err = binder(t, Policy{Allowed: []address.Address{a}}, closed, config("tenant")).Bind(t.Context(), secretStore("tenant", func(s *v2alpha1.StoreSpec) {
		s.ProviderConfig.Address = vaultAddress
	}))
	if err == nil || !strings.Contains(err.Error(), "allowedNamespaces leave out") {
		t.Errorf("err = %v", err)
	}
}

// An address that only a flag allows has no name that could be an audience.
func TestTokenForAnUnregisteredAddressNamesItsAudience(t *testing.T) {
	t.Parallel()

	a, err := address.Parse("10.0.0.1:8443")
	if err != nil {
		t.Fatal(err)
	}

	_, err = binder(t, Policy{Allowed: []address.Address{a}}, config("tenant")).Bind(t.Context(), secretStore("tenant", func(s *v2alpha1.StoreSpec) {
		s.ProviderConfig.Address = "10.0.0.1:8443"
		s.ProviderConfig.Auth = &v2alpha1.ProviderAuth{ServiceAccountRef: &v2alpha1.ServiceAccountRef{Name: "reader"}}
	}))
	if err == nil || !strings.Contains(err.Error(), "serviceAccountRef.audience is needed") {
		t.Errorf("err = %v", err)
	}
}
