package tests

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/installation"
)

// issuer is somebody else's certificate authority.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()

	i := &issuer{}
	i.certificate, i.key = i.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "corp"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	})

	return i
}

func (i *issuer) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)

	parent, signer := template, key
	if i.certificate != nil {
		parent, signer = i.certificate, i.key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return certificate, key
}

// issue gives tls.crt, tls.key and ca.crt for an identity on loopback.
func (i *issuer) issue(t *testing.T, identity string, until time.Time) map[string][]byte {
	t.Helper()

	uri, err := url.Parse(identity)
	if err != nil {
		t.Fatal(err)
	}

	certificate, key := i.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: identity}, URIs: []*url.URL{uri}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"ca.crt":  i.bundle(),
	}
}

func (i *issuer) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw})
}

// folder holds a server's certificate.
func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()

	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// tlsSecret makes a Secret of type kubernetes.io/tls that is gone after the
// test.
func tlsSecret(t *testing.T, namespace, name string, data map[string][]byte) {
	t.Helper()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data}
	if err := product.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = product.Client.Delete(context.Background(), secret) })
}

// instance starts another process of the fake provider for a namespace, until
// the test is over.
func instance(t *testing.T, ns string, i installation.Instance) *installation.Provider {
	t.Helper()

	i.Provider, i.Name, i.AllowedNamespaces = "fake", "fake-"+ns, []string{ns}

	p, err := product.StartInstance(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = product.Client.Delete(context.Background(), secretProvider(i.Name))
		_ = p.Stop()
	})

	return p
}

// storeAt is a store of the fake backend at an address, with its auth.
func storeAt(name, address, auth string) string {
	config := "  providerConfig:\n    address: " + address
	if auth != "" {
		config += "\n    auth: " + auth
	}

	return strings.NewReplacer("name: store", "name: "+name, "  providerConfig:", config).Replace(fakeStore)
}

// Where somebody else issues certificates, the operator shows the one that the
// registration names, or a store its own; a provider that wants another refuses
// it.
func TestCertificatesOfAnotherIssuer(t *testing.T) {
	for _, mode := range []v2alpha1.TLSMode{v2alpha1.TLSModeExternal, v2alpha1.TLSModeCertManager} {
		t.Run(string(mode), func(t *testing.T) {
			ns, corp := newNamespace(t), newIssuer(t)
			later := time.Now().Add(time.Hour)

			tlsSecret(t, installation.OperatorNamespace, "operator-"+ns, corp.issue(t, "spiffe://corp/operator", later))

			tls := v2alpha1.ProviderTLS{Mode: mode, ClientCertificateSecretRef: &v2alpha1.ObjectName{Name: "operator-" + ns}}
			if mode == v2alpha1.TLSModeExternal {
				tls.CABundle = corp.bundle()
			}

			p := instance(t, ns, installation.Instance{
				TLS: tls, TLSDir: folder(t, corp.issue(t, "spiffe://corp/provider", later)), Flags: []string{"--operator-identity", "spiffe://corp/operator"},
			})
			storeCondition(t, secretProvider(p.Name), v2alpha1.ReasonServing)

			// By the registration's certificate, and by one of the store's own.
			tlsSecret(t, ns, "mine", corp.issue(t, "spiffe://corp/operator", later))
			apply(t, ns, storeAt("by-registration", p.Address, "")+simpleES("by-registration", "by-registration"))
			apply(t, ns, storeAt("by-store", p.Address, "{clientCertificate: {secretRef: {name: mine}}}")+simpleES("by-store", "by-store"))
			holds(t, ns, "by-registration", "password", "s3cret")
			holds(t, ns, "by-store", "password", "s3cret")

			for name, c := range map[string]struct {
				data map[string][]byte
				want string
			}{
				"absent":   {nil, `cannot be secured: cannot use the client certificate: Secret "absent" does not exist in namespace "` + ns + `"`},
				"expired":  {corp.issue(t, "spiffe://corp/operator", time.Now().Add(-time.Minute)), "it expired at"},
				"somebody": {corp.issue(t, "spiffe://corp/somebody", later), "certificate"},
				"foreign":  {newIssuer(t).issue(t, "spiffe://corp/operator", later), "certificate"},
			} {
				if c.data != nil {
					tlsSecret(t, ns, name, c.data)
				}

				apply(t, ns, storeAt(name, p.Address, "{clientCertificate: {secretRef: {name: "+name+"}}}"))
				t.Logf("%s: %s", name, storeCondition(t, secretStore(ns, name), v2alpha1.ReasonProviderUnavailable, c.want))
			}

			// What was absent comes: the store recovers by itself.
			tlsSecret(t, ns, "absent", corp.issue(t, "spiffe://corp/operator", later))
			becomes(t, secretStore(ns, "absent"), v2alpha1.ReasonValid)
		})
	}
}

// A certificate of the store's own is for providers that do not trust the
// operator's authority.
func TestOwnCertificateAtAManagedProvider(t *testing.T) {
	ns := newNamespace(t)
	apply(t, ns, storeAt("store", fake.Address, "{clientCertificate: {secretRef: {name: mine}}}"))
	storeCondition(t, secretStore(ns, "store"), v2alpha1.ReasonInvalidProviderConfig, "accepts the operator's own certificate only")

	apply(t, ns, storeAt("empty", fake.Address, "{clientCertificate: {}}"))
	storeCondition(t, secretStore(ns, "empty"), v2alpha1.ReasonValid)
}

// A provider that wants a ServiceAccount's token takes calls with that one only,
// and the operator gets it where it may.
func TestServiceAccountTokens(t *testing.T) {
	ns := newNamespace(t)

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

	p := instance(t, ns, installation.Instance{Flags: []string{"--caller", ns + "/reader", "--caller", "external-secrets/external-secrets-operator"}})
	storeCondition(t, secretProvider(p.Name), v2alpha1.ReasonServing)

	for name, c := range map[string]struct{ auth, want string }{
		"none":     {"", "the call carries no token: this provider takes calls of " + ns + "/reader"},
		"reader":   {"{serviceAccountRef: {name: reader}}", "bind the ClusterRole external-secrets-operator-tokens"},
		"operator": {"{serviceAccountRef: {}}", "bind the ClusterRole external-secrets-provider-tokens"},
	} {
		apply(t, ns, storeAt(name, p.Address, c.auth)+simpleES(name, name))
		t.Logf("%s: %s", name, storeCondition(t, secretStore(ns, name), v2alpha1.ReasonProviderUnavailable, c.want))
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
		becomes(t, secretStore(ns, name), v2alpha1.ReasonValid)
		holds(t, ns, name, "password", "s3cret")
	}

	for name, c := range map[string]struct{ auth, want string }{
		"other":    {"{serviceAccountRef: {name: other}}", "the token is that of ServiceAccount " + ns + "/other"},
		"nobody":   {"{serviceAccountRef: {name: nobody}}", "it does not exist"},
		"powerful": {"{serviceAccountRef: {name: reader, audience: \"https://kubernetes.default.svc.cluster.local\"}}", "choose another audience"},
		"astray":   {"{serviceAccountRef: {name: reader, audience: elsewhere}}", "does not hold for audience"},
	} {
		apply(t, ns, storeAt(name, p.Address, c.auth))
		t.Logf("%s: %s", name, storeCondition(t, secretStore(ns, name), v2alpha1.ReasonProviderUnavailable, c.want))
	}
}

// Both sides take their certificates from the SPIFFE Workload API.
func TestSPIFFE(t *testing.T) {
	ns := newNamespace(t)

	for name, id := range map[string]string{"provider-" + ns: "spiffe://corp/fake", "impostor-" + ns: "spiffe://corp/impostor"} {
		if err := trustDomain.Serve(name, id); err != nil {
			t.Fatal(err)
		}
	}

	p := instance(t, ns, installation.Instance{
		TLS:   v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE, ServerID: "spiffe://corp/fake"},
		Flags: []string{"--spiffe-endpoint-socket", trustDomain.Socket("provider-" + ns), "--operator-identity", "spiffe://corp/operator"},
	})
	storeCondition(t, secretProvider(p.Name), v2alpha1.ReasonServing)

	apply(t, ns, storeAt("store", p.Address, "{spiffeRef: {}}")+simpleES("app", "store"))
	storeCondition(t, secretStore(ns, "store"), v2alpha1.ReasonValid)
	holds(t, ns, "app", "password", "s3cret")

	t.Run("another workload of the trust domain is not the provider", func(t *testing.T) {
		ns := newNamespace(t)
		p := instance(t, ns, installation.Instance{
			TLS:   v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE, ServerID: "spiffe://corp/fake"},
			Flags: []string{"--spiffe-endpoint-socket", trustDomain.Socket("impostor-" + strings.TrimPrefix(secretProvider(p.Name).Name, "fake-")), "--operator-identity", "spiffe://corp/operator"},
		})
		t.Log(storeCondition(t, secretProvider(p.Name), v2alpha1.ReasonUntrusted, "unexpected ID", "spiffe://corp/impostor"))
	})

	t.Run("another workload of the trust domain is not the operator", func(t *testing.T) {
		other := newNamespace(t)
		p := instance(t, other, installation.Instance{
			TLS:   v2alpha1.ProviderTLS{Mode: v2alpha1.TLSModeSPIFFE},
			Flags: []string{"--spiffe-endpoint-socket", trustDomain.Socket("provider-" + ns), "--operator-identity", "spiffe://corp/somebody"},
		})
		eventually(t, func(ctx context.Context) error {
			ready, err := storeReady(ctx, secretProvider(p.Name))
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
	ns := newNamespace(t)
	p := instance(t, ns, installation.Instance{Socket: filepath.Join(socketDir, ns+".sock")})
	storeCondition(t, secretProvider(p.Name), v2alpha1.ReasonServing)

	apply(t, ns, storeAt("store", p.Address, "")+simpleES("app", "store"))
	holds(t, ns, "app", "password", "s3cret")

	for name, c := range map[string]struct{ address, auth, reason, want string }{
		"token":   {p.Address, "{serviceAccountRef: {name: default}}", v2alpha1.ReasonInvalidProviderConfig, "tokens travel over TLS only"},
		"outside": {"unix:///run/docker.sock", "", v2alpha1.ReasonProviderNotRegistered, "nothing was dialled"},
		"dotted":  {"unix://" + socketDir + "/../docker.sock", "", v2alpha1.ReasonInvalidProviderConfig, "the path is not clean"},
	} {
		apply(t, ns, storeAt(name, c.address, c.auth))
		t.Logf("%s: %s", name, storeCondition(t, secretStore(ns, name), c.reason, c.want))
	}
}
