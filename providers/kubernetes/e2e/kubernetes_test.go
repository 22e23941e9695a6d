package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/controlplane"
	"github.com/external-secrets/eso/testkit/suite"
)

// kubernetesStore makes a Kubernetes config for a namespace, and a store on it.
const kubernetesStore = `
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Kubernetes
metadata:
  name: backend
spec:
  remoteNamespace: SOURCE
  auth:
    serviceAccount: {name: reader}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: store
spec:
  providerConfig:
    providerRef: {kind: Kubernetes, name: backend}
`

// account makes the ServiceAccount "reader" and grants it rights in another
// namespace.
func account(t *testing.T, c client.Client, ns, in string, rules ...rbacv1.PolicyRule) {
	t.Helper()

	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: ns + "-reader"}, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: ns + "-reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: ns + "-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "reader"}},
		},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// ofSecrets are rights to Secrets.
func ofSecrets(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs}
}

func sourceSecret(t *testing.T, c client.Client, ns, name string, data map[string][]byte, labels map[string]string) {
	t.Helper()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Data: data}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// Secrets of this cluster reach another namespace with no more rights than the
// tenant's own ServiceAccount has.
func TestKubernetesSecrets(t *testing.T) {
	t.Parallel()

	source, ns := product.Namespace(t), product.Namespace(t)
	account(t, product.Client, ns, source, ofSecrets("get", "list"))
	sourceSecret(t, product.Client, source, "db", map[string][]byte{"password": []byte("s3cret"), "tls.crt": []byte("cert"), "binary": {0, 0xff, 0xfe}}, nil)
	sourceSecret(t, product.Client, source, "one", map[string][]byte{"k": []byte("first")}, map[string]string{"team": "a"})
	sourceSecret(t, product.Client, source, "two", map[string][]byte{"k": []byte("second")}, map[string]string{"team": "b"})

	product.Apply(t, ns, strings.ReplaceAll(kubernetesStore, "SOURCE", source))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	product.Apply(t, ns, `
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: app
spec:
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  data:
  - {secretKey: certificate, remoteRef: {key: db, property: tls.crt}}
  - {secretKey: team, remoteRef: {key: one, property: labels.team, metadataPolicy: Fetch}}
  dataFrom:
  - extract: {key: db}
  - find: {tags: {team: b}}
`)
	product.Synced(t, ns, "app")

	for key, value := range map[string]string{
		"password": "s3cret", "tls.crt": "cert", "binary": "\x00\xff\xfe", "certificate": "cert", "team": "a", "two": `{"k":"second"}`,
	} {
		product.Holds(t, ns, "app", key, value)
	}

	t.Run("what the ServiceAccount may not read, the store does not", func(t *testing.T) {
		other := product.Namespace(t)
		sourceSecret(t, product.Client, other, "db", map[string][]byte{"password": []byte("foreign")}, nil)
		product.Apply(t, ns, strings.NewReplacer("name: backend", "name: other", "name: store", "name: other", "SOURCE", other).Replace(kubernetesStore)+
			suite.SimpleES("foreign", "other"))
		product.StoreCondition(t, suite.SecretStore(ns, "other"), v2alpha1.ReasonInvalidProviderConfig, "may not get Secrets in namespace")
		product.Failing(t, ns, "foreign", "may not get Secrets in namespace")
	})

	t.Run("a Secret that is not there is proven absent", func(t *testing.T) {
		product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("absent", "store"), "key: db", "key: nothing"))
		product.Failing(t, ns, "absent", `"nothing" not found`)
	})
}

// Another cluster is reached by each kind of login that it can give.
func TestKubernetesOfAnotherCluster(t *testing.T) {
	t.Parallel()

	other, err := controlplane.Start(t.Context(), controlplane.Options{WithoutControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()

		if err := other.Stop(ctx); err != nil {
			t.Error(err)
		}
	})

	remote, err := client.New(other.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	account(t, remote, metav1.NamespaceDefault, metav1.NamespaceDefault, ofSecrets("get"))
	sourceSecret(t, remote, metav1.NamespaceDefault, "db", map[string][]byte{"password": []byte("from afar")}, nil)

	file, err := other.KubeconfigFor(t.Context(), types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "reader"})
	if err != nil {
		t.Fatal(err)
	}

	kubeconfig, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}

	token := &authenticationv1.TokenRequest{}
	if err := remote.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "reader"}}, token); err != nil {
		t.Fatal(err)
	}

	ns := product.Namespace(t)
	admin := other.Config()
	sourceSecret(t, product.Client, ns, "login", map[string][]byte{
		"kubeconfig": kubeconfig, "token": []byte(token.Status.Token + "\n"), "ca": admin.CAData, "crt": admin.CertData, "key": admin.KeyData,
		"exec": []byte(strings.ReplaceAll(string(kubeconfig), "token:", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}\n    token:")),
	}, nil)

	server := fmt.Sprintf("server: {url: %q, caProvider: {secretRef: {name: login, key: ca}}}\n  ", admin.Host)

	for name, login := range map[string]string{
		"kubeconfig":  "authRef: {name: login, key: kubeconfig}",
		"token":       server + "auth: {token: {bearerToken: {name: login, key: token}}}",
		"certificate": server + "auth: {cert: {clientCert: {name: login, key: crt}, clientKey: {name: login, key: key}}}",
		"exec":        "authRef: {name: login, key: exec}",
	} {
		t.Run(name, func(t *testing.T) {
			manifest := strings.NewReplacer("name: backend", "name: "+name, "name: store", "name: "+name, "remoteNamespace: SOURCE", "remoteNamespace: default", `auth:
    serviceAccount: {name: reader}`, login).Replace(kubernetesStore)
			product.Apply(t, ns, manifest+suite.SimpleES(name, name))

			if name == "exec" {
				product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonInvalidProviderConfig, "exec is not allowed")

				return
			}

			product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonValid)
			product.Holds(t, ns, name, "password", "from afar")
		})
	}
}

// slowAPIServer is the API server behind a proxy that takes its time, as a
// config's server.
func slowAPIServer(t *testing.T, ns string) string {
	t.Helper()

	admin := product.ControlPlane.Config()

	address, err := url.Parse(admin.Host)
	if err != nil {
		t.Fatal(err)
	}

	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(admin.CAData)

	proxy := httputil.NewSingleHostReverseProxy(address)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}}
	proxy.ErrorLog = log.New(io.Discard, "", 0)

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		select {
		case <-time.After(2500 * time.Millisecond):
			proxy.ServeHTTP(w, request)
		case <-request.Context().Done():
		}
	}))
	t.Cleanup(server.Close)

	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "slow"}, Data: map[string]string{"ca.crt": string(certificate)}}
	if err := product.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}

	return fmt.Sprintf("  server: {url: %q, caProvider: {configMapRef: {name: slow, key: ca.crt}}}\n", server.URL)
}

// An edited source Secret reaches its target by the API server's own word, and
// not by a poll.
func TestKubernetesTellsOfChanges(t *testing.T) {
	t.Parallel()

	source, ns := product.Namespace(t), product.Namespace(t)
	account(t, product.Client, ns, source, ofSecrets("get", "list", "watch"))
	sourceSecret(t, product.Client, source, "db", map[string][]byte{"password": []byte("first")}, nil)
	sourceSecret(t, product.Client, source, "other", map[string][]byte{"password": []byte("first")}, nil)

	product.Apply(t, ns, strings.ReplaceAll(kubernetesStore, "SOURCE", source))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)
	product.Apply(t, ns, suite.SimpleES("app", "store"))
	product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("other", "store"), "key: db", "key: other"))
	product.Holds(t, ns, "app", "password", "first")
	product.Holds(t, ns, "other", "password", "first")

	edit := func(value string) time.Duration {
		t.Helper()

		began := time.Now()

		if err := product.Client.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: source, Name: "db"}},
			client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"password":"`+value+`"}}`))); err != nil {
			t.Fatal(err)
		}

		for {
			if secret, err := product.Secret(t.Context(), ns, "app"); err == nil && string(secret.Data["password"]) == value {
				return time.Since(began)
			}

			if time.Since(began) > 20*time.Second {
				t.Fatalf("the target does not hold %q", value)
			}

			time.Sleep(5 * time.Millisecond)
		}
	}

	// The watch is established shortly after the first sync.
	edit("second")

	before := product.Synced(t, ns, "other").Status.RefreshTime

	var longest time.Duration

	for i := range 20 {
		took := edit(fmt.Sprintf("edit %d", i))
		longest = max(longest, took)
	}

	if t.Logf("20 edits, the slowest in the target after %s", longest); longest > time.Second {
		t.Errorf("an edit took %s to reach the target", longest)
	}

	if after := product.Synced(t, ns, "other").Status.RefreshTime; !after.Equal(&before) {
		t.Error("an ExternalSecret of another Secret was refreshed")
	}

	t.Run("a change while the provider is away is seen when it is back", func(t *testing.T) {
		if err := product.Providers["kubernetes"].Kill(); err != nil {
			t.Fatal(err)
		}

		if err := product.Client.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: source, Name: "other"}},
			client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"password":"meanwhile"}}`))); err != nil {
			t.Fatal(err)
		}

		if err := product.Providers["kubernetes"].Start(t.Context()); err != nil {
			t.Fatal(err)
		}

		product.Holds(t, ns, "other", "password", "meanwhile")
	})
}

// endingSoon gives a token as another one that expires in a few seconds. No API
// server issues one of less than ten minutes; it accepts it a minute longer than
// it says.
func endingSoon(t *testing.T, like string) string {
	t.Helper()

	signer, err := product.ControlPlane.SigningKey()
	if err != nil {
		t.Fatal(err)
	}

	token, err := jwt.ParseSigned(like, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}

	claims := map[string]any{}
	if err := token.UnsafeClaimsWithoutVerification(&claims); err != nil {
		t.Fatal(err)
	}

	claims["exp"] = time.Now().Add(-time.Minute + 5*time.Second).Unix()
	claims["iat"] = time.Now().Add(-time.Hour).Unix()
	claims["nbf"] = claims["iat"]

	// Bound to nothing: it ends by the clock alone.
	if about, ok := claims["kubernetes.io"].(map[string]any); ok {
		delete(about, "secret")
	}

	sign, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: signer}, (&jose.SignerOptions{}).WithHeader("kid", token.Headers[0].KeyID))
	if err != nil {
		t.Fatal(err)
	}

	signed, err := jwt.Signed(sign).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}

	return signed
}

// kubernetesCredentials are ServiceAccounts' tokens that end.
func TestCredentialsThatExpire(t *testing.T) {
	source, ns := product.Namespace(t), product.Namespace(t)
	account(t, product.Client, ns, source, ofSecrets("get"))
	sourceSecret(t, product.Client, source, "db", map[string][]byte{"p1": []byte("1"), "p2": []byte("2"), "p3": []byte("3"), "p4": []byte("4"), "p5": []byte("5")}, nil)

	var current string

	boundTo := map[string]*corev1.Secret{}

	set := func(token string) {
		current = token

		if _, err := product.Kubectl(t.Context(), "", "-n", ns, "patch", "secret", "login", "-p", `{"stringData":{"token":"`+token+`"}}`); err != nil {
			t.Fatal("cannot patch the token's Secret")
		}
	}

	// Tokens that are bound to an object end with it.
	bound := func() string {
		t.Helper()

		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "bound-"}}
		if err := product.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}

		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: object.Name, UID: object.UID},
		}}
		if err := product.Client.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader"}}, request); err != nil {
			t.Fatal(err)
		}

		boundTo[request.Status.Token] = object

		return request.Status.Token
	}

	revoke := func() {
		if err := product.Client.Delete(t.Context(), boundTo[current]); err != nil {
			t.Fatal(err)
		}
	}

	sourceSecret(t, product.Client, ns, "login", nil, nil)
	set(bound())

	product.Apply(t, ns, strings.NewReplacer("SOURCE", source, "serviceAccount: {name: reader}", "token: {bearerToken: {name: login, key: token}}").Replace(kubernetesStore))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	calls := func() int { return suite.BackendCalls(t, product.Providers["kubernetes"], "Get", "Create") }
	before, began := calls(), time.Now()

	product.Crowd(t, ns, "db")
	product.CrowdSynced(t, ns, began)
	t.Logf("the first sync of %d ExternalSecrets with 5 properties of one Secret: %d requests to the API server", suite.CrowdSize, calls()-before)

	fresh := func() { set(bound()) }

	for name, fail := range map[string]func(){
		"wrong": func() {
			old := boundTo[current]
			set("wrong-token")

			if err := product.Client.Delete(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		},
		"revoked": revoke,
		"expired": func() {
			old := boundTo[current]
			set(endingSoon(t, current))

			if err := product.Client.Delete(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Credential{
				Fail: fail, Restore: fresh, Calls: calls, Budget: 120,
				Texts: []string{"the API server refuses the login", "Unauthenticated"}, Secrets: []string{current, "wrong-token"},
			}.Suffers(t, product, ns)
		})
	}
}

// Objects of other kinds reach a target as far as the allow-list goes.
func TestKubernetesResources(t *testing.T) {
	t.Parallel()

	source, ns := product.Namespace(t), product.Namespace(t)
	account(t, product.Client, ns, source, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "services"}, Verbs: []string{"get", "list"}})

	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: source, Name: "db"}, Data: map[string]string{"host": "db.example.com"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: source, Name: "db"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.corp"}},
	} {
		if err := product.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	product.Apply(t, ns, strings.ReplaceAll(`
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Resource
metadata:
  name: backend
spec:
  remoteNamespace: SOURCE
  auth:
    serviceAccount: {name: reader}
  allow:
  - {apiVersion: v1, resource: configmaps, names: [db]}
  - {apiVersion: v1, resource: services, fields: [spec.externalName]}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: store
spec:
  providerConfig:
    providerRef: {kind: Resource, name: backend}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: app
spec:
  refreshInterval: 1h
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  data:
  - {secretKey: host, remoteRef: {key: configmaps/db, property: data.host}}
  - {secretKey: service, remoteRef: {key: services/db}}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: more
spec:
  refreshInterval: 1h
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  data:
  - {secretKey: type, remoteRef: {key: services/db, property: spec.type}}
---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: other
spec:
  refreshInterval: 1h
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  data:
  - {secretKey: other, remoteRef: {key: configmaps/kube-root-ca.crt}}
`, "SOURCE", source))
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)
	product.Holds(t, ns, "app", "host", "db.example.com")
	product.Holds(t, ns, "app", "service", `{"spec":{"externalName":"db.corp"}}`)
	product.Failing(t, ns, "more", `has no property "spec.type"`)
	product.Failing(t, ns, "other", "spec.allow does not list it", "PermissionDenied")
}
