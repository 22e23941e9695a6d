package functional

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/issuer"
	"github.com/external-secrets/eso/testkit/suite"
)

// Where another CA issues certificates, the operator shows the one that the
// registration names, or a store its own; a provider that wants another refuses
// it.
func TestCertificatesOfAnotherIssuer(t *testing.T) {
	t.Parallel()

	for _, mode := range []v2alpha1.TLSMode{v2alpha1.TLSModeExternal, v2alpha1.TLSModeCertManager} {
		t.Run(string(mode), func(t *testing.T) {
			ns, corp := product.Namespace(t), issuer.New(t)
			later := time.Now().Add(time.Hour)

			product.TLSSecret(t, installation.OperatorNamespace, "operator-"+ns, corp.Issue(t, "spiffe://corp/operator", later))

			tls := v2alpha1.ProviderTLS{Mode: mode, ClientCertificateSecretRef: &v2alpha1.ObjectName{Name: "operator-" + ns}}
			if mode == v2alpha1.TLSModeExternal {
				tls.CABundle = corp.Bundle()
			}

			p := product.Instance(t, ns, installation.Instance{
				TLS: tls, TLSDir: issuer.Folder(t, corp.Issue(t, "spiffe://corp/provider", later)), Flags: []string{"--operator-identity", "spiffe://corp/operator"},
			})
			product.StoreCondition(t, suite.SecretProvider(p.Name), v2alpha1.ReasonServing)

			// By the registration's certificate, and by one of the store's own.
			product.TLSSecret(t, ns, "mine", corp.Issue(t, "spiffe://corp/operator", later))
			product.Apply(t, ns, suite.StoreAt("by-registration", p.Address, "")+suite.SimpleES("by-registration", "by-registration"))
			product.Apply(t, ns, suite.StoreAt("by-store", p.Address, "{clientCertificate: {secretRef: {name: mine}}}")+suite.SimpleES("by-store", "by-store"))
			product.Holds(t, ns, "by-registration", "password", "s3cret")
			product.Holds(t, ns, "by-store", "password", "s3cret")

			for name, c := range map[string]struct {
				data map[string][]byte
				want string
			}{
				"absent":  {nil, `cannot be secured: cannot use the client certificate: Secret "absent" does not exist in namespace "` + ns + `"`},
				"expired": {corp.Issue(t, "spiffe://corp/operator", time.Now().Add(-time.Minute)), "it expired at"},
				"another": {corp.Issue(t, "spiffe://corp/another", later), "certificate"},
				"foreign": {issuer.New(t).Issue(t, "spiffe://corp/operator", later), "certificate"},
			} {
				if c.data != nil {
					product.TLSSecret(t, ns, name, c.data)
				}

				product.Apply(t, ns, suite.StoreAt(name, p.Address, "{clientCertificate: {secretRef: {name: "+name+"}}}"))
				t.Logf("%s: %s", name, product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonProviderUnavailable, c.want))
			}

			// When the absent Secret is created, the store recovers by itself.
			product.TLSSecret(t, ns, "absent", corp.Issue(t, "spiffe://corp/operator", later))
			product.StoreCondition(t, suite.SecretStore(ns, "absent"), v2alpha1.ReasonValid)
		})
	}
}

// A certificate of the store's own is for providers that do not trust the
// operator's authority.
func TestOwnCertificateAtAManagedProvider(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.StoreAt("store", product.Providers["fake"].Address, "{clientCertificate: {secretRef: {name: mine}}}"))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonInvalidProviderConfig, "accepts the operator's own certificate only")

	product.Apply(t, ns, suite.StoreAt("empty", product.Providers["fake"].Address, "{clientCertificate: {}}"))
	product.StoreCondition(t, suite.SecretStore(ns, "empty"), v2alpha1.ReasonValid)
}

// A provider that wants a ServiceAccount's token takes calls with that one only,
// and the operator gets it where it may.
func TestServiceAccountTokens(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)

	for _, name := range []string{"reader", "other"} {
		if err := product.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}

	review := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "review-" + ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "external-secrets-provider-tokens"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "provider-fake", Name: "external-secrets-provider-fake"}},
	}

	t.Cleanup(func() { _ = product.Client.Delete(context.Background(), review) })

	p := product.Instance(t, ns, installation.Instance{Flags: []string{"--caller", ns + "/reader", "--caller", "external-secrets/external-secrets-operator"}})
	product.StoreCondition(t, suite.SecretProvider(p.Name), v2alpha1.ReasonServing)

	for name, c := range map[string]struct{ auth, want string }{
		"none":     {"", "the call carries no token: this provider takes calls of " + ns + "/reader"},
		"reader":   {"{serviceAccountRef: {name: reader}}", "bind the ClusterRole external-secrets-operator-tokens"},
		"operator": {"{serviceAccountRef: {}}", "bind the ClusterRole external-secrets-provider-tokens"},
	} {
		product.Apply(t, ns, suite.StoreAt(name, p.Address, c.auth)+suite.SimpleES(name, name))
		t.Logf("%s: %s", name, product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonProviderUnavailable, c.want))
	}

	// The rights come.
	if err := product.Client.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}

	if err := product.Client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tokens"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "external-secrets-operator-tokens"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: installation.OperatorNamespace, Name: "external-secrets-operator"}},
	}); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"reader", "operator"} {
		product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonValid)
		product.Holds(t, ns, name, "password", "s3cret")
	}

	for name, c := range map[string]struct{ auth, want string }{
		"other":    {"{serviceAccountRef: {name: other}}", "the token is that of ServiceAccount " + ns + "/other"},
		"absent":   {"{serviceAccountRef: {name: absent}}", "it does not exist"},
		"powerful": {"{serviceAccountRef: {name: reader, audience: \"https://kubernetes.default.svc.cluster.local\"}}", "choose another audience"},
		"astray":   {"{serviceAccountRef: {name: reader, audience: elsewhere}}", "does not hold for audience"},
	} {
		product.Apply(t, ns, suite.StoreAt(name, p.Address, c.auth))
		t.Logf("%s: %s", name, product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonProviderUnavailable, c.want))
	}
}

// Both sides take their certificates from the SPIFFE Workload API.
func TestSPIFFE(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)

	for name, id := range map[string]string{"provider-" + ns: "spiffe://corp/fake", "impostor-" + ns: "spiffe://corp/impostor"} {
		if err := trustDomain.Serve(name, id); err != nil {
			t.Fatal(err)
		}
	}

	p := product.Instance(t, ns, installation.Instance{
		TLS:   v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE, ServerID: "spiffe://corp/fake"},
		Flags: []string{"--spiffe-endpoint-socket", trustDomain.Socket("provider-" + ns), "--operator-identity", "spiffe://corp/operator"},
	})
	product.StoreCondition(t, suite.SecretProvider(p.Name), v2alpha1.ReasonServing)

	product.Apply(t, ns, suite.StoreAt("store", p.Address, "{spiffeRef: {}}")+suite.SimpleES("app", "store"))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)
	product.Holds(t, ns, "app", "password", "s3cret")

	t.Run("another workload of the trust domain is not the provider", func(t *testing.T) {
		ns := product.Namespace(t)
		p := product.Instance(t, ns, installation.Instance{
			TLS:   v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE, ServerID: "spiffe://corp/fake"},
			Flags: []string{"--spiffe-endpoint-socket", trustDomain.Socket("impostor-" + strings.TrimPrefix(suite.SecretProvider(p.Name).Name, "fake-")), "--operator-identity", "spiffe://corp/operator"},
		})
		t.Log(product.StoreCondition(t, suite.SecretProvider(p.Name), v2alpha1.ReasonUntrusted, "unexpected ID", "spiffe://corp/impostor"))
	})

	t.Run("another workload of the trust domain is not the operator", func(t *testing.T) {
		other := product.Namespace(t)
		p := product.Instance(t, other, installation.Instance{
			TLS:   v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE},
			Flags: []string{"--spiffe-endpoint-socket", trustDomain.Socket("provider-" + ns), "--operator-identity", "spiffe://corp/another"},
		})
		suite.Eventually(t, func(ctx context.Context) error {
			ready, err := product.StoreReady(ctx, suite.SecretProvider(p.Name))
			// Whether the alert or the closing arrives first is not ours.
			if err == nil && ready.Reason != v2alpha1.ReasonUntrusted && !strings.Contains(ready.Message, "may refuse the operator's certificate") {
				err = fmt.Errorf("the provider is not refused: %+v", ready)
			}

			return err
		})
	})
}

// A provider behind a unix socket needs no certificates: the kernel says who is
// at the other end.
func TestUnixSocket(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	p := product.Instance(t, ns, installation.Instance{Socket: filepath.Join(product.SocketDir, ns+".sock")})
	product.StoreCondition(t, suite.SecretProvider(p.Name), v2alpha1.ReasonServing)

	product.Apply(t, ns, suite.StoreAt("store", p.Address, "")+suite.SimpleES("app", "store"))
	product.Holds(t, ns, "app", "password", "s3cret")

	for name, c := range map[string]struct{ address, auth, reason, want string }{
		"token":   {p.Address, "{serviceAccountRef: {name: default}}", v2alpha1.ReasonInvalidProviderConfig, "tokens travel over TLS only"},
		"outside": {"unix:///run/docker.sock", "", v2alpha1.ReasonProviderNotRegistered, "nothing was dialled"},
		"dotted":  {"unix://" + product.SocketDir + "/../docker.sock", "", v2alpha1.ReasonInvalidProviderConfig, "the path is not clean"},
	} {
		product.Apply(t, ns, suite.StoreAt(name, c.address, c.auth))
		t.Logf("%s: %s", name, product.StoreCondition(t, suite.SecretStore(ns, name), c.reason, c.want))
	}
}
