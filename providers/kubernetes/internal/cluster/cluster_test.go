package cluster

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is part of every credential: no error may contain it.
const canary = "canary-77aa"

// references are a Secret's keys.
type references map[string]string

func (r references) SecretKey(_ context.Context, ref metav1alpha1.SecretKeySelector) ([]byte, error) {
	value, ok := r[ref.Key]
	if !ok {
		return nil, provider.InvalidConfig("Secret %q has no key %q", ref.Name, ref.Key)
	}

	return []byte(value), nil
}

func (r references) CABundle(ctx context.Context, source metav1alpha1.CASource) ([]byte, error) {
	return r.SecretKey(ctx, *source.SecretRef)
}

func (r references) ServiceAccountToken(_ context.Context, ref metav1alpha1.ServiceAccountSelector, audiences ...string) (string, error) {
	if ref.Name == "absent" {
		return "", provider.InvalidConfig("the ServiceAccount does not exist")
	}

	return canary + ref.Name + strings.Join(audiences, ","), nil
}

func (r references) Namespace() string { return "ns" }

func key(name string) metav1alpha1.SecretKeySelector {
	return metav1alpha1.SecretKeySelector{Name: "login", Key: name}
}

func ref(name string) *metav1alpha1.SecretKeySelector {
	k := key(name)

	return &k
}

// apiServer answers with the token that it got.
func apiServer(t *testing.T) (url, ca string) {
	t.Helper()

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "https://evil.example.com/", http.StatusFound)

			return
		}

		w.Header().Set("X-Got", r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)

	return server.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// get returns the status and the login that the server got.
func get(t *testing.T, c *Cluster, path string) (status int, login string) {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	response, err := c.Client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()

	return response.StatusCode, response.Header.Get("X-Got")
}

func TestOpen(t *testing.T) {
	url, ca := apiServer(t)
	secret := references{"ca": ca, "token": canary + "\n"}
	server := &v2alpha1.KubernetesServer{URL: url, CAProvider: &metav1alpha1.CASource{SecretRef: ref("ca")}}
	own := provider.APIServer{URL: url, CABundle: []byte(ca)}

	for _, test := range []struct {
		name, why string
		spec      v2alpha1.Cluster
		want      string
	}{
		{"token", "unchanged, without the trailing newline", v2alpha1.Cluster{Server: server, Auth: &v2alpha1.KubernetesAuth{Token: &v2alpha1.KubernetesToken{BearerToken: key("token")}}}, "Bearer " + canary},
		{"ServiceAccount", "a token is requested", v2alpha1.Cluster{Server: server, Auth: &v2alpha1.KubernetesAuth{ServiceAccount: &metav1alpha1.ServiceAccountSelector{Name: "app"}}}, "Bearer " + canary + "app"},
		{"this cluster", "its address is known, its login is not lent", v2alpha1.Cluster{Auth: &v2alpha1.KubernetesAuth{ServiceAccount: &metav1alpha1.ServiceAccountSelector{Name: "app"}}}, "Bearer " + canary + "app"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := Open(t.Context(), provider.Environment{References: secret, APIServer: own}, &test.spec)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			if _, login := get(t, c, "/"); login != test.want {
				t.Fatalf("%s: the server got another login", test.why)
			}

			if status, _ := get(t, c, "/redirect"); status != http.StatusFound {
				t.Errorf("a redirect was followed (%d): the login is for this server alone", status)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	_, ca := apiServer(t)
	token := &v2alpha1.KubernetesAuth{Token: &v2alpha1.KubernetesToken{BearerToken: key("token")}}

	kubeconfig := func(cluster, user string) string {
		return "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
			"clusters: [{name: k, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n"
	}

	const at = "server: https://cluster.example.com"

	for _, test := range []struct {
		name, why string
		spec      v2alpha1.Cluster
		secret    references
		want      string
	}{
		{"no login", "the provider's own is not lent", v2alpha1.Cluster{}, nil, "set auth or authRef"},
		{"no cluster", "there may be none", v2alpha1.Cluster{Auth: token}, references{"token": canary}, "spec.server: needed"},
		{"http", "the token would be read by all", v2alpha1.Cluster{Server: &v2alpha1.KubernetesServer{URL: "http://cluster.example.com"}, Auth: token}, references{"token": canary}, "https only"},
		{"no URL", "each mistake names its field", v2alpha1.Cluster{Server: &v2alpha1.KubernetesServer{URL: "https://"}, Auth: token}, references{"token": canary}, "spec.server.url"},
		{"a bundle that is none", "likewise", v2alpha1.Cluster{Server: &v2alpha1.KubernetesServer{URL: "https://a", CABundle: []byte("x")}, Auth: token}, references{"token": canary}, "spec.server.caBundle holds no PEM"},
		{"a token of two lines", "it would be two headers", v2alpha1.Cluster{Server: &v2alpha1.KubernetesServer{URL: "https://a"}, Auth: token}, references{"token": canary + "\nX: y"}, "spec.auth.token.bearerToken"},
		{"no ServiceAccount", "reported when the store is created", v2alpha1.Cluster{Server: &v2alpha1.KubernetesServer{URL: "https://a"}, Auth: &v2alpha1.KubernetesAuth{ServiceAccount: &metav1alpha1.ServiceAccountSelector{Name: "absent"}}}, nil, "does not exist"},
		{
			"a certificate without its key", "likewise",
			v2alpha1.Cluster{Server: &v2alpha1.KubernetesServer{URL: "https://a"}, Auth: &v2alpha1.KubernetesAuth{Cert: &v2alpha1.KubernetesCert{ClientCert: key("ca"), ClientKey: key("ca")}}},
			references{"ca": ca}, "spec.auth.cert",
		},
		{"no kubeconfig", "its text is a credential and not quoted", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": canary + ": ["}, "it is no kubeconfig"},
		{"no context", "", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": "apiVersion: v1\nkind: Config\n"}, "current-context is missing"},
		{"exec", "it would run a program in the provider's Pod", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at, "exec: {apiVersion: client.authentication.k8s.io/v1, command: id, interactiveMode: Never}")}, "exec is not allowed"},
		{"token file", "it would send the provider's own", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at, "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token")}, "tokenFile is not allowed"},
		{"certificate file", "likewise", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at, "client-certificate: /etc/tls.crt, client-key: /etc/tls.key")}, "client-certificate is not allowed"},
		{"authority file", "an error would reveal which files exist", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at+", certificate-authority: /etc/ca.crt", "token: "+canary)}, "certificate-authority is not allowed"},
		{"no check of the server", "any server could impersonate it", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at+", insecure-skip-tls-verify: true", "token: "+canary)}, "insecure-skip-tls-verify is not allowed"},
		{"proxy", "it is dialled before the server", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at+", proxy-url: http://10.0.0.1", "token: "+canary)}, "proxy-url is not allowed"},
		{"impersonation", "the store does not show it", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at, "token: "+canary+", as: admin")}, "as is not allowed"},
		{"http in the kubeconfig", "", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig("server: http://cluster.example.com", "token: "+canary)}, "no https URL"},
		{"no login in the kubeconfig", "", v2alpha1.Cluster{AuthRef: ref("file")}, references{"file": kubeconfig(at, "")}, "neither client-certificate-data nor a token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Open(t.Context(), provider.Environment{References: test.secret}, &test.spec)
			if err == nil {
				t.Fatalf("%s: it is opened", test.why)
			}

			if typed := provider.AsError(err); typed.Code != codes.FailedPrecondition || !strings.Contains(typed.Message, test.want) || strings.Contains(typed.Message, canary) {
				t.Errorf("%s: %v: %s, want %q", test.why, typed.Code, typed.Message, test.want)
			}
		})
	}
}

func TestError(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}

	for _, test := range []struct {
		name, why string
		err       error
		want      codes.Code
		text      string
	}{
		{"not found", "the API server names what is not there", apierrors.NewNotFound(resource, "db"), codes.NotFound, `"db" not found`},
		{"no such path", "a server without Secrets is no evidence that one is absent", apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", resource, "db", canary, 0, true), codes.FailedPrecondition, "has no such path"},
		{"unauthorized", "the SDK logs in again", apierrors.NewUnauthorized("expired"), codes.Unauthenticated, "refuses the login"},
		{"forbidden", "another Secret may be allowed", apierrors.NewForbidden(resource, "db", errors.New("no")), codes.PermissionDenied, "forbidden"},
		{"conflict", "it is tried again", apierrors.NewConflict(resource, "db", errors.New("x")), codes.Aborted, "at the same time"},
		{"throttled", "it contains the retry delay", apierrors.NewTooManyRequests("slow", 7), codes.ResourceExhausted, "throttles"},
		{"a page of something else", "it could be any page of the provider's network", apierrors.NewGenericServerResponse(http.StatusBadGateway, "GET", resource, "db", canary, 0, true), codes.Unavailable, "502: Bad Gateway"},
		{"no answer", "", errors.New("connection refused"), codes.Unavailable, "does not answer"},
		{"the store's own limit", "it keeps its own words", provider.Throttled(time.Second, "limit"), codes.ResourceExhausted, "limit"},
		{"too late", "", context.DeadlineExceeded, codes.DeadlineExceeded, "deadline"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := provider.AsError(Error("read Secret", test.err))
			if got.Code != test.want || !strings.Contains(got.Message, test.text) || strings.Contains(got.Message, canary) {
				t.Errorf("%s: %v: %s", test.why, got.Code, got.Message)
			}
		})
	}

	if got := provider.AsError(Error("read", apierrors.NewTooManyRequests("slow", 7))); got.RetryAfter != 7*time.Second {
		t.Errorf("retry after %s", got.RetryAfter)
	}
}

func TestOperation(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/a/secrets/db":                             "Get",
		"/api/v1/namespaces/a/secrets?limit=1":                        "List",
		"/api/v1/namespaces/a/secrets?watch=true":                     "Watch",
		"/apis/example.com/v1/namespaces/a/databases/db":              "Get",
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews":       "Get",
		"/prefix/api/v1/namespaces/namespaces/secrets/namespaces":     "Get",
		"/api/v1/namespaces/a/secrets/db?resourceVersion=1&timeout=1": "Get",
	} {
		if got := operation(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)); got != want {
			t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
}

// What listens where the config leads could be anything of the provider's
// network.
func TestErrorQuotesNoServer(t *testing.T) {
	got := provider.AsError(Error("read", errors.New(`malformed HTTP response "`+canary+`"`)))
	if got.Code != codes.Unavailable || strings.Contains(got.Message, canary) {
		t.Errorf("%v: %s", got.Code, got.Message)
	}
}
