package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// connection is shared by the stores with the same server, TLS settings and
// credentials: it has their connections and their login.
type connection struct {
	digest string
	http   *http.Client
	login  *login

	// users is guarded by connections.
	users int
}

// connections are those of a process.
type connections struct {
	mu     sync.Mutex
	shared map[string]*connection
}

// acquire returns the connection of a digest, which dial creates if there is none. It
// must be released.
func (c *connections) acquire(digest string, dial func() (*connection, error)) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if shared, ok := c.shared[digest]; ok {
		shared.users++

		return shared, nil
	}

	made, err := dial()
	if err != nil {
		return nil, err
	}

	made.digest, made.users = digest, 1
	c.shared[digest] = made

	return made, nil
}

// forget removes a connection whose login Vault no longer accepts, so that later
// stores log in again.
func (c *connections) forget(old *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.shared[old.digest] == old {
		delete(c.shared, old.digest)
	}
}

// release ends a store's use of a connection. The last release revokes the login.
func (c *connections) release(ctx context.Context, used *connection) error {
	c.mu.Lock()

	used.users--
	last := used.users == 0

	if last && c.shared[used.digest] == used {
		delete(c.shared, used.digest)
	}
	c.mu.Unlock()

	if !last {
		return nil
	}

	defer used.http.CloseIdleConnections()

	return used.login.revoke(ctx)
}

// newHTTPClient returns the client of a connection.
func newHTTPClient(env provider.Environment, spec *v2alpha1.VaultSpec, roots *x509.CertPool, certificate *tls.Certificate) *http.Client {
	options := backend.Options{Base: drained{newTransport(roots, certificate)}, Calls: env.Calls, Operation: operation, MaxAnswer: maxAnswer}
	if spec.RequestsPerSecond != nil {
		options.RequestsPerSecond = int(*spec.RequestsPerSecond)
	}

	return &http.Client{
		Transport: backend.NewTransport(options),
		// Vault's library follows the one redirect of a standby server, and none
		// from HTTPS to HTTP. Package http would follow any, with the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func newTransport(roots *x509.CertPool, certificate *tls.Certificate) *http.Transport {
	transport, _ := http.DefaultTransport.(*http.Transport)
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	transport.MaxIdleConnsPerHost = 16
	// Without pings, a connection that a firewall has dropped would be used for every
	// request until the kernel times out, minutes later.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}

	if certificate != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	}

	return transport
}

// operation returns the name of a request, that of ESO v1's metrics if there is one.
func operation(r *http.Request) string {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")

	switch {
	case path == "auth/token/lookup-self":
		return "LookupSelf"
	case path == "auth/token/renew-self":
		return "RenewSelf"
	case path == "auth/token/revoke-self":
		return "RevokeSelf"
	case strings.HasPrefix(path, "auth/"):
		return "Login"
	case strings.HasPrefix(path, eventsPath):
		return "Subscribe"
	case strings.HasPrefix(path, "sys/"):
		return "LookupMount"
	case r.URL.Query().Has("list"):
		return "ListSecrets"
	case r.Method == http.MethodGet:
		return "ReadSecretData"
	case r.Method == http.MethodDelete:
		return "DeleteSecret"
	default:
		return "WriteSecretData"
	}
}

// newClient returns a client of Vault's library, without a token.
func newClient(httpClient *http.Client, env provider.Environment, spec *v2alpha1.VaultSpec) (*api.Client, error) {
	retries, interval := defaultRetries, defaultInterval
	if env.Retry.MaxRetries != nil {
		retries = *env.Retry.MaxRetries
	}

	if env.Retry.Interval > 0 {
		interval = env.Retry.Interval
	}

	client, err := api.NewClient(&api.Config{
		Address:        spec.Server,
		HttpClient:     httpClient,
		MaxRetries:     retries,
		MinRetryWait:   interval,
		MaxRetryWait:   max(interval, maxInterval),
		Timeout:        requestTimeout,
		CheckRetry:     retry,
		Backoff:        backoff,
		ReadYourWrites: spec.ReadYourWrites,
	})
	if err != nil {
		return nil, provider.InvalidConfig("spec.server: %v", err)
	}

	// The library reads token and namespace from the environment, but a store uses
	// those of its config only.
	client.ClearToken()
	client.ClearNamespace()

	for name, value := range spec.Headers {
		if own := strings.ToLower(name); strings.HasPrefix(own, "x-vault-") && own != "x-vault-inconsistent" {
			return nil, provider.InvalidConfig("spec.headers: %q is set by another field", name)
		}

		client.AddHeader(name, value)
	}

	if spec.ForwardInconsistent {
		client.AddHeader("X-Vault-Inconsistent", "forward-active-node")
	}

	if spec.Namespace != "" {
		client.SetNamespace(spec.Namespace)
	}

	return client, nil
}

// unrepeatedKey is the key of a context whose requests are not repeated.
type unrepeatedKey struct{}

func unrepeated(ctx context.Context) context.Context {
	return context.WithValue(ctx, unrepeatedKey{}, true)
}

// retry decides whether a request is repeated. One that Vault throttles is not: the
// error has the time for the operator's next attempt.
func retry(ctx context.Context, response *http.Response, err error) (bool, error) {
	// Neither is one that the store's own limit throttles.
	if typed := (*provider.Error)(nil); errors.As(err, &typed) {
		return false, err
	}

	if err == nil && response.StatusCode == http.StatusTooManyRequests || ctx.Value(unrepeatedKey{}) != nil {
		return false, nil
	}

	return api.DefaultRetryPolicy(ctx, response, err)
}

// backoff doubles the interval of the store object. The library's own returns a random
// time between that and the longest.
func backoff(interval, longest time.Duration, attempt int, _ *http.Response) time.Duration {
	return min(interval<<min(attempt, 10), longest)
}
