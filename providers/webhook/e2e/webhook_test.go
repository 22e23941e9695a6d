package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/issuer"
	"github.com/external-secrets/eso/testkit/suite"
)

// apiToken is what the API of tests asks for.
const apiToken = "api-token-5d1c-canary"

// webhookAPI is an HTTP API that keeps secrets: versions of them, by number, and
// the marks of their owners. It speaks HTTPS, with a certificate of an authority
// of its own.
type webhookAPI struct {
	*httptest.Server

	// authority is the PEM bundle to trust.
	authority []byte
	// slow is how long a request below /slow/ takes.
	slow time.Duration

	mu sync.Mutex
	// token that is asked for.
	token    string
	versions map[string][]string
	owners   map[string]string
	seen     map[string]int
}

func newWebhookAPI(t *testing.T) *webhookAPI {
	t.Helper()

	authority := issuer.New(t)
	files := authority.Issue(t, "spiffe://corp/api", time.Now().Add(time.Hour))

	pair, err := tls.X509KeyPair(files["tls.crt"], files["tls.key"])
	if err != nil {
		t.Fatal(err)
	}

	a := &webhookAPI{authority: authority.Bundle(), token: apiToken, versions: map[string][]string{}, owners: map[string]string{}, seen: map[string]int{}}
	a.Server = httptest.NewUnstartedServer(a)
	a.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	a.StartTLS()
	t.Cleanup(a.Close)

	return a
}

// put makes a secret that carries no mark have one version more.
func (a *webhookAPI) put(key, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.versions[key] = append(a.versions[key], value)
}

// requests returns the number of requests with a method.
func (a *webhookAPI) requests(method string) int {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.seen[method]
}

func (a *webhookAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.admits(r) {
		w.WriteHeader(http.StatusUnauthorized)
		// Some APIs echo the credential, which must not be reported.
		_, _ = io.WriteString(w, "no such token: "+r.Header.Get("Authorization")) //nolint:gosec // no browser renders it

		return
	}

	key, slow := strings.CutPrefix(r.URL.Path, "/slow/")
	if slow {
		select {
		case <-time.After(a.slow):
		case <-r.Context().Done():
			return
		}
	} else {
		key = strings.TrimPrefix(r.URL.Path, "/v1/")
	}

	if key == "moved" {
		http.Redirect(w, r, "/v1/elsewhere", http.StatusFound)

		return
	}

	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	a.seen[r.Method]++
	a.answer(w, r, key, string(body))
}

// admits counts a request and reports whether its token is valid.
func (a *webhookAPI) admits(r *http.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.seen["all"]++

	return r.Header.Get("Authorization") == "Bearer "+a.token
}

// accept makes the API ask for another token.
func (a *webhookAPI) accept(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.token = token
}

func (a *webhookAPI) answer(w http.ResponseWriter, r *http.Request, key, body string) {
	versions := a.versions[key]
	there := len(versions) > 0
	writes := r.Method == http.MethodPut || r.Method == http.MethodDelete
	owner := r.Header.Get("X-Owner")

	switch {
	case writes && there && a.owners[key] != owner && (a.owners[key] != "" || r.Header.Get("X-Adopt") != "true"):
		w.WriteHeader(http.StatusConflict)
	case r.Method == http.MethodPut:
		a.versions[key], a.owners[key] = append(versions, body), owner
	case !there:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(a.versions, key)
		delete(a.owners, key)
	default:
		a.read(w, r, key, versions)
	}
}

func (a *webhookAPI) read(w http.ResponseWriter, r *http.Request, key string, versions []string) {
	n := len(versions)

	if asked := r.URL.Query().Get("version"); asked != "" {
		if _, err := fmt.Sscan(asked, &n); err != nil || n < 1 || n > len(versions) {
			w.WriteHeader(http.StatusNotFound)

			return
		}
	}

	value := versions[n-1]

	if r.URL.Query().Has("property") {
		var values map[string]string
		if err := json.Unmarshal([]byte(value), &values); err != nil {
			w.WriteHeader(http.StatusUnprocessableEntity)

			return
		}

		value = values[r.URL.Query().Get("property")]
	}

	tag := fmt.Sprintf(`"%d-%s"`, n, r.URL.RawQuery)
	w.Header().Set("ETag", tag)
	w.Header().Set("X-Owner", a.owners[key])

	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)

		return
	}

	_, _ = io.WriteString(w, value)
}

// webhookConfig is a config for the API. Its fields besides URL and credentials
// are given.
func webhookConfig(name, url, fields string) string {
	return strings.NewReplacer("NAME", name, "URL", url).Replace(`---
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Webhook
metadata:
  name: NAME
spec:
  url: URL
  headers:
    Authorization: Bearer {{ .api.token }}
  secrets:
  - {name: api, secretRef: {name: api, key: token}}
  caProvider: {configMapRef: {name: authorities, key: ca.crt}}
` + fields + `---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: NAME
spec:
  providerConfig:
    providerRef: {kind: Webhook, name: NAME}
`)
}

// webhookCredentials makes what webhookConfig refers to.
func webhookCredentials(t *testing.T, ns string, api *webhookAPI, token string) *corev1.Secret {
	t.Helper()

	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "authorities"}, Data: map[string]string{"ca.crt": string(api.authority)}}
	if err := product.Client.Create(t.Context(), authorities); err != nil {
		t.Fatal(err)
	}

	return product.NewSecret(t, ns, "api", corev1.SecretTypeOpaque, map[string]string{"token": token})
}

func TestWebhookReads(t *testing.T) {
	t.Parallel()

	ns, api := product.Namespace(t), newWebhookAPI(t)
	api.put("app/db", `{"data":{"user":"old","password":"old"}}`)
	api.put("app/db", `{"data":{"user":"app","password":"s3cret","port":5432,"replicas":[{"name":"a","host":"one"},{"name":"b","host":"two"}]}}`)
	api.put("raw", "\x00\x01\xff\n")
	webhookCredentials(t, ns, api, apiToken)

	url := api.URL + "/v1/{{ .remoteRef.key | path }}?version={{ .remoteRef.version }}"
	product.Apply(t, ns, webhookConfig("data", url, "  result: {jsonPath: $.data}\n")+
		webhookConfig("raw", url, "")+
		webhookConfig("host", url, "  result: {jsonPath: \"$.data.replicas[?(@.name == {{ .remoteRef.property | quote }})].host\"}\n")+`---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: app
spec:
  refreshInterval: 1h
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: data}
  dataFrom:
  - extract: {key: app/db}
  data:
  - {secretKey: password, remoteRef: {key: app/db, property: password, version: "1"}}
  - secretKey: raw
    remoteRef: {key: raw}
    sourceRef:
      storeRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: raw}
  - secretKey: host
    remoteRef: {key: app/db, property: b}
    sourceRef:
      storeRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: host}
`)
	product.Synced(t, ns, "app")

	for key, value := range map[string]string{"user": "app", "password": "old", "port": "5432", "raw": "\x00\x01\xff\n", "host": "two"} {
		product.Holds(t, ns, "app", key, value)
	}

	product.StoreCondition(t, suite.SecretStore(ns, "data"), v2alpha1.ReasonValidationUnknown)

	t.Run("what is absent, and what redirects", func(t *testing.T) {
		product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("absent", "data"), "key: db", "key: nothing")+strings.ReplaceAll(suite.SimpleES("moved", "data"), "key: db", "key: moved"))
		product.Failing(t, ns, "absent", `secret "nothing"`, "404")
		product.Failing(t, ns, "moved", `secret "moved"`, "302", "redirect")
	})
}

// The condition reports that a credential was refused without showing it, and the
// credential is read again: a new value is used at once.
func TestWebhookCredentials(t *testing.T) {
	t.Parallel()

	const wrong = "wrong-token-81f2-canary"

	ns, api := product.Namespace(t), newWebhookAPI(t)
	api.put("db", `{"password":"s3cret"}`)
	secret := webhookCredentials(t, ns, api, wrong)

	product.Apply(t, ns, webhookConfig("store", api.URL+"/v1/{{ .remoteRef.key }}", "")+strings.ReplaceAll(suite.SimpleES("app", "store"), "refreshInterval: 1h", "refreshInterval: 1s"))

	message := product.Failing(t, ns, "app", "answers 401: it refuses the credentials", "Unauthenticated")
	if strings.Contains(message, wrong) {
		t.Errorf("the message holds the token: %s", message)
	}

	product.Merge(t, secret, map[string]any{"stringData": map[string]string{"token": apiToken}})
	product.Holds(t, ns, "app", "password", "s3cret")

	t.Run("an authority that is not the server's", func(t *testing.T) {
		bundle := issuer.New(t).Bundle()
		product.Merge(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "authorities"}}, map[string]any{"data": map[string]string{"ca.crt": string(bundle)}})
		product.Apply(t, ns, webhookConfig("other", api.URL+"/v1/{{ .remoteRef.key }}", "")+suite.SimpleES("other", "other"))
		product.Failing(t, ns, "other", "unknown authority", "spec.caProvider")
	})
}

// A crowd whose token the API refuses, for whatever
// reason: it says 401 to all of them.
func TestCredentialsThatExpire(t *testing.T) {
	t.Parallel()

	ns, api := product.Namespace(t), newWebhookAPI(t)
	api.put("db", `{"p1":"1","p2":"2","p3":"3","p4":"4","p5":"5"}`)
	secret := webhookCredentials(t, ns, api, apiToken)

	product.Apply(t, ns, webhookConfig("store", api.URL+"/v1/{{ .remoteRef.key }}", ""))
	product.Crowd(t, ns, "db")
	product.CrowdSynced(t, ns, time.Now())

	suite.Credential{
		Fail: func() { api.accept("another-token") },
		Restore: func() {
			product.Merge(t, secret, map[string]any{"stringData": map[string]string{"token": "another-token"}})
		},
		Calls: func() int { return api.requests("all") }, Budget: 120,
		Texts: []string{"answers 401: it refuses the credentials", "Unauthenticated"}, Secrets: []string{apiToken, "another-token"},
	}.Suffers(t, product, ns)
}

// Addresses inside of the network are refused before anything is dialled, and
// mistakes in templates before anything is asked.
func TestWebhookConfigs(t *testing.T) {
	t.Parallel()

	ns, api := product.Namespace(t), newWebhookAPI(t)
	webhookCredentials(t, ns, api, apiToken)

	for name, c := range map[string]struct{ url, fields, text string }{
		"private":  {"https://10.0.0.1/{{ .remoteRef.key }}", "", "spec.url leads to a private address"},
		"metadata": {"http://169.254.169.254/latest/{{ .remoteRef.key }}", "", "spec.url leads to a link-local address"},
		"mapped":   {"http://[::ffff:192.168.0.1]/{{ .remoteRef.key }}", "", "spec.url leads to a private address"},
		"host":     {"https://{{ .remoteRef.key }}.example.com/", "", "no value may decide where a request goes"},
		"function": {api.URL + "/", "  body: \"\\n{{ env `HOME` }}\"\n", `spec.body:2: function "env" not defined`},
		"path":     {api.URL + "/", "  result: {jsonPath: '$['}\n", "spec.result.jsonPath: it is no JSONPath"},
	} {
		product.Apply(t, ns, webhookConfig(name, c.url, c.fields))
		product.StoreCondition(t, suite.SecretStore(ns, name), v2alpha1.ReasonInvalidProviderConfig, c.text)
	}
}

// What many ExternalSecrets of five properties each cost the API: a request for
// each, where the URL does not name the property.
func TestWhatAWebhookCosts(t *testing.T) {
	t.Parallel()

	const many = 100

	ns, api := product.Namespace(t), newWebhookAPI(t)
	api.put("db", `{"p0":"a","p1":"b","p2":"c","p3":"d","p4":"e"}`)
	webhookCredentials(t, ns, api, apiToken)
	product.Apply(t, ns, webhookConfig("whole", api.URL+"/v1/{{ .remoteRef.key }}", "")+webhookConfig("single", api.URL+"/v1/{{ .remoteRef.key }}?property={{ .remoteRef.property }}", ""))
	product.StoreCondition(t, suite.SecretStore(ns, "whole"), v2alpha1.ReasonValidationUnknown)
	product.StoreCondition(t, suite.SecretStore(ns, "single"), v2alpha1.ReasonValidationUnknown)

	for store, most := range map[string]int{"whole": many, "single": 5 * many} {
		before := api.requests(http.MethodGet)

		var manifest strings.Builder

		for i := range many {
			name := fmt.Sprintf("%s-%d", store, i)
			manifest.WriteString(strings.ReplaceAll(suite.SimpleES(name, store), "  - secretKey: password\n    remoteRef: {key: db, property: password}\n", ""))

			for p := range 5 {
				fmt.Fprintf(&manifest, "  - {secretKey: p%d, remoteRef: {key: db, property: p%d}}\n", p, p)
			}
		}

		began := time.Now()

		product.Apply(t, ns, manifest.String())
		suite.Within(t, 2*time.Minute, func(ctx context.Context) error {
			for i := range many {
				secret, err := product.Secret(ctx, ns, fmt.Sprintf("%s-%d", store, i))
				if err != nil {
					return err
				}

				if string(secret.Data["p0"])+string(secret.Data["p4"]) != "ae" {
					return errors.New("it does not hold its properties")
				}
			}

			return nil
		})

		n := api.requests(http.MethodGet) - before
		t.Logf("%d ExternalSecrets of 5 properties of one key, store %q: %d requests, in %s with the applying", many, store, n, time.Since(began).Round(time.Second/10))

		if n == 0 || n > most {
			t.Errorf("store %q: %d requests; at most %d are needed", store, n, most)
		}
	}
}
