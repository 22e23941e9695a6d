package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
)

const (
	// tokenLife is how long a requested token is used: it expires after ten
	// minutes.
	tokenLife = 8 * time.Minute
	// idleTimeout is after what time unused connections are closed.
	idleTimeout = 90 * time.Second
	// maxAnswer bounds a response, such as a page of a list, in bytes.
	maxAnswer = 64 << 20
	// Defaults of the store's retry settings, for reads.
	defaultRetries  = 2
	defaultInterval = 500 * time.Millisecond
	// userAgent of requests.
	userAgent = "external-secrets-provider-kubernetes"
)

// Cluster is an API server and the login to it.
type Cluster struct {
	// Config for clients of client-go. It sets no deadline: contexts do.
	Config *rest.Config
	// Client performs its requests.
	Client *http.Client

	idle func()
}

// Open returns the cluster of a config.
func Open(ctx context.Context, env provider.Environment, spec *v2alpha1.Cluster) (*Cluster, error) {
	target, err := resolve(ctx, env, spec)
	if err != nil {
		return nil, err
	}

	base := &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: target.roots, ServerName: target.serverName, Certificates: target.certificates,
		},
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: 16,
		ForceAttemptHTTP2:   true,
		// Without pings, a connection that was dropped would be used for every
		// request until the kernel times out.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}

	options := backend.Options{Base: base, Calls: env.Calls, Operation: operation, MaxAnswer: maxAnswer, Retry: backend.RetryOf(env.Retry, defaultRetries, defaultInterval)}
	if spec.RequestsPerSecond != nil {
		options.RequestsPerSecond = int(*spec.RequestsPerSecond)
	}

	var performer http.RoundTripper = backend.NewTransport(options)
	if target.token != nil {
		performer = transport.TokenSourceWrapTransport(target.token)(performer)
	}

	return &Cluster{
		// client-go's own limit would apply in addition to the config's.
		Config: &rest.Config{Host: target.server, UserAgent: userAgent, QPS: -1},
		Client: &http.Client{
			Transport: performer,
			// The credentials are not for another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		idle: base.CloseIdleConnections,
	}, nil
}

// Close ends idle connections.
func (c *Cluster) Close() { c.idle() }

// operation returns the name of a request, without the names of objects.
func operation(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	verb := map[string]string{http.MethodGet: "Get", http.MethodPost: "Create", http.MethodPut: "Update", http.MethodPatch: "Patch", http.MethodDelete: "Delete"}[r.Method]

	// .../namespaces/NAMESPACE/RESOURCE, and the name of an object.
	if i := slices.Index(parts, "namespaces"); i >= 0 && r.Method == http.MethodGet && i+3 == len(parts) {
		verb = "List"
	}

	if r.URL.Query().Get("watch") != "" {
		verb = "Watch"
	}

	return verb
}

// target is a server and the login to it.
type target struct {
	server     string
	serverName string
	// roots are nil for the system's authorities.
	roots        *x509.CertPool
	certificates []tls.Certificate
	// token is nil for a login with a certificate.
	token oauth2.TokenSource
}

func resolve(ctx context.Context, env provider.Environment, spec *v2alpha1.Cluster) (*target, error) {
	switch {
	case spec.Auth != nil && spec.AuthRef != nil:
		return nil, provider.InvalidConfig("spec: set one of auth and authRef")
	case spec.AuthRef != nil:
		return fromKubeconfig(ctx, env.References, *spec.AuthRef)
	case spec.Auth == nil:
		return nil, provider.InvalidConfig("spec: set auth or authRef")
	}

	t, err := serverOf(ctx, env, spec.Server)
	if err != nil {
		return nil, err
	}

	switch auth := spec.Auth; {
	case auth.ServiceAccount != nil:
		t.token = oauth2.ReuseTokenSource(nil, &accountTokens{references: env.References, account: *auth.ServiceAccount})
		// A ServiceAccount that does not exist is reported now.
		_, err = t.token.Token()
	case auth.Token != nil:
		err = t.bearer(ctx, env.References, "spec.auth.token.bearerToken", auth.Token.BearerToken)
	case auth.Cert != nil:
		err = t.certificate(ctx, env.References, auth.Cert)
	default:
		err = provider.InvalidConfig("spec.auth: set one of serviceAccount, token and cert")
	}

	return t, err
}

// serverOf returns the API server that the config names, or the provider's.
func serverOf(ctx context.Context, env provider.Environment, server *v2alpha1.KubernetesServer) (*target, error) {
	if server == nil {
		if env.APIServer.URL == "" {
			return nil, provider.InvalidConfig("spec.server: needed: the provider does not run in a cluster")
		}

		t := &target{server: env.APIServer.URL}

		return t, t.trust("the provider's own kubeconfig", env.APIServer.CABundle)
	}

	address := server.URL
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}

	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.User != nil {
		return nil, provider.InvalidConfig("spec.server.url: %q is not the URL of an API server, such as https://cluster.example.com:6443", server.URL)
	}

	if parsed.Scheme != "https" {
		return nil, provider.InvalidConfig("spec.server.url: %q: credentials travel over https only", server.URL)
	}

	t := &target{server: address}

	switch {
	case server.CAProvider != nil:
		bundle, err := env.References.CABundle(ctx, *server.CAProvider)
		if err != nil {
			return nil, err
		}

		return t, t.trust("spec.server.caProvider", bundle)
	case len(server.CABundle) > 0:
		return t, t.trust("spec.server.caBundle", server.CABundle)
	default:
		return t, nil
	}
}

// trust sets the authorities; without a bundle they are the system's.
func (t *target) trust(field string, bundle []byte) error {
	if len(bundle) == 0 && strings.HasPrefix(field, "the provider") {
		return nil
	}

	t.roots = x509.NewCertPool()
	if !t.roots.AppendCertsFromPEM(bundle) {
		return provider.InvalidConfig("%s holds no PEM certificate", field)
	}

	return nil
}

func (t *target) bearer(ctx context.Context, references provider.References, field string, ref metav1alpha1.SecretKeySelector) error {
	value, err := references.SecretKey(ctx, ref)
	if err != nil {
		return err
	}

	token := strings.TrimSpace(string(value))
	if !isToken(token) {
		return provider.InvalidConfig("%s: key %q of Secret %q is no token: it is empty or holds what no header can", field, ref.Key, ref.Name)
	}

	t.token = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token})

	return nil
}

func (t *target) certificate(ctx context.Context, references provider.References, refs *v2alpha1.KubernetesCert) error {
	cert, err := references.SecretKey(ctx, refs.ClientCert)
	if err != nil {
		return err
	}

	key, err := references.SecretKey(ctx, refs.ClientKey)
	if err != nil {
		return err
	}

	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		// The library's error quotes neither of them.
		return provider.InvalidConfig("spec.auth.cert: key %q of Secret %q and key %q of Secret %q are no certificate and its private key: %v",
			refs.ClientCert.Key, refs.ClientCert.Name, refs.ClientKey.Key, refs.ClientKey.Name, err)
	}

	t.certificates = []tls.Certificate{pair}

	return nil
}

// isToken reports whether a text can be the value of a header.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// accountTokens requests tokens of a ServiceAccount.
type accountTokens struct {
	references provider.References
	account    metav1alpha1.ServiceAccountSelector
}

// Token requests a token. The interface has no context, so the request has its
// own timeout.
func (a *accountTokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	token, err := a.references.ServiceAccountToken(ctx, a.account)
	if err != nil {
		return nil, err
	}

	return &oauth2.Token{AccessToken: token, Expiry: time.Now().Add(tokenLife)}, nil
}
