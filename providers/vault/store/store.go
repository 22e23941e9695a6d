package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
	defaultRetries  = 2
	defaultInterval = time.Second
	requestTimeout  = 20 * time.Second
	// maxAnswer bounds an answer of a server that the config's author chose.
	maxAnswer = 8 << 20
	// maxRedirect bounds what is read of one that only redirects.
	maxRedirect = 64 << 10
)

// Store reads one key/value engine.
type Store struct {
	client *api.Client
	http   *http.Client
	engine engine
	login  *login
	plain  bool

	mu sync.Mutex
	// versions of engines, by mount, as far as they were looked up.
	versions map[string]string
}

var (
	_ provider.Reader = (*Store)(nil)
	_ provider.Finder = (*Store)(nil)
)

// New makes the store of a config and logs in.
func New(ctx context.Context, env provider.Environment, config *v2alpha1.Vault) (*Store, error) {
	return open(ctx, env, config, time.Now)
}

func open(ctx context.Context, env provider.Environment, config *v2alpha1.Vault, now func() time.Time) (*Store, error) {
	roots, err := authorities(ctx, env, &config.Spec)
	if err != nil {
		return nil, err
	}

	httpClient := newHTTPClient(roots)

	client, err := newClient(httpClient, env, &config.Spec)
	if err != nil {
		return nil, err
	}

	s := &Store{
		client:   client,
		http:     httpClient,
		engine:   engine{mount: config.Spec.Path, version: config.Spec.Version},
		login:    newLogin(client, &config.Spec, env.References, now),
		plain:    strings.HasPrefix(config.Spec.Server, "http://"),
		versions: map[string]string{},
	}

	if _, err := s.login.token(ctx); err != nil {
		httpClient.CloseIdleConnections()

		return nil, err
	}

	return s, nil
}

func newHTTPClient(roots *x509.CertPool) *http.Client {
	transport, _ := http.DefaultTransport.(*http.Transport)
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	transport.MaxIdleConnsPerHost = 16

	return &http.Client{
		Transport: bounded{transport},
		// Vault's library follows the one redirect of a standby server, and
		// never from HTTPS to HTTP. Package http would follow any, and take
		// the token along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded keeps a server from filling the memory. It also ends what Vault's
// library leaves open: the answer that redirects.
type bounded struct{ *http.Transport }

// RoundTrip performs a request.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}

	if response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest {
		// Read to its end, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, response.Body, maxRedirect)
		response.Body.Close()
		response.Body = http.NoBody
	}

	response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)

	return response, nil
}

func newClient(httpClient *http.Client, env provider.Environment, spec *v2alpha1.VaultSpec) (*api.Client, error) {
	retries, interval := defaultRetries, defaultInterval
	if env.Retry.MaxRetries != nil {
		retries = *env.Retry.MaxRetries
	}

	if env.Retry.Interval > 0 {
		interval = env.Retry.Interval
	}

	config := &api.Config{
		Address:      spec.Server,
		HttpClient:   httpClient,
		MaxRetries:   retries,
		MinRetryWait: interval,
		MaxRetryWait: max(interval, 10*time.Second),
		Timeout:      requestTimeout,
		CheckRetry:   retry,
		Backoff:      backoff,
	}

	client, err := api.NewClient(config)
	if err != nil {
		return nil, provider.InvalidConfig("spec.server: %v", err)
	}

	// The library takes token and namespace from the environment: a store has
	// those of its config and no others.
	client.ClearToken()
	client.ClearNamespace()

	if spec.Namespace != "" {
		client.SetNamespace(spec.Namespace)
	}

	return client, nil
}

// retry decides on another try. One that Vault puts off is the operator's to
// make: it is told when, and waits without keeping anybody.
func retry(ctx context.Context, response *http.Response, err error) (bool, error) {
	if err == nil && response.StatusCode == http.StatusTooManyRequests {
		return false, nil
	}

	return api.DefaultRetryPolicy(ctx, response, err)
}

// backoff doubles the interval that the store object asks for. The library's
// own would take any time from it to the longest.
func backoff(interval, longest time.Duration, attempt int, _ *http.Response) time.Duration {
	return min(interval<<min(attempt, 10), longest)
}

// authorities gives the pool of spec.caBundle or spec.caProvider; nil means
// the system's.
func authorities(ctx context.Context, env provider.Environment, spec *v2alpha1.VaultSpec) (*x509.CertPool, error) {
	bundle, field := spec.CABundle, "spec.caBundle"

	if spec.CAProvider != nil {
		field = "spec.caProvider"

		var err error
		if bundle, err = env.References.CABundle(ctx, *spec.CAProvider); err != nil {
			return nil, err
		}
	}

	if len(bundle) == 0 && spec.CAProvider == nil {
		return nil, nil //nolint:nilnil // nil is the system's pool
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, provider.InvalidConfig("%s holds no PEM certificate", field)
	}

	return pool, nil
}

// Read reads each key and version once, however many properties of it are
// asked for.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	return document.Read(ctx, reads, s.fetch)
}

// Validate asks Vault whether the login holds.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	if err := s.login.check(ctx); err != nil {
		return provider.Validation{}, err
	}

	if s.plain {
		return provider.Validation{Warnings: []string{"spec.server is plain HTTP: token and secrets travel unprotected"}}, nil
	}

	return provider.Validation{}, nil
}

// Close revokes the login, unless it is a token that the config names.
func (s *Store) Close(ctx context.Context) error {
	defer s.http.CloseIdleConnections()

	return s.login.revoke(ctx)
}

func (s *Store) fetch(ctx context.Context, key, version string, metadata bool) (document.Document, error) {
	from, err := s.engine.locate(key, version, metadata)
	if err != nil {
		return document.Document{}, err
	}

	token, err := s.login.token(ctx)
	if err != nil {
		return document.Document{}, err
	}

	client, err := as(s.client, token)
	if err != nil {
		return document.Document{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	// Not ReadWithData: it gives the same nothing for every kind of 404.
	response, err := client.Logical().ReadRawWithDataWithContext(ctx, from.path, from.query)
	if response != nil {
		defer response.Body.Close()
	}

	if err != nil {
		return document.Document{}, s.readError(ctx, client, from, key, version, response, err)
	}

	secret, err := api.ParseSecret(response.Body)
	if err != nil {
		return document.Document{}, provider.Unavailable("cannot read secret %q: the server does not answer as Vault does: %v", key, err)
	}

	return from.document(key, version, secret)
}

// readError makes Vault's refusal one that the operator understands. Vault
// answers 403 both to a token that has ended and to one without the right to
// read; only asking about the token tells them apart.
func (s *Store) readError(ctx context.Context, client *api.Client, from location, key, version string, response *api.Response, err error) error {
	typed := provider.AsError(requestError("read secret \""+key+"\"", err))

	switch {
	case response == nil:
	case response.StatusCode == http.StatusNotFound:
		body, readErr := io.ReadAll(response.Body)
		if readErr != nil {
			return typed
		}

		return s.absence(ctx, client, from, key, version, body)
	case typed.Code == codes.ResourceExhausted:
		typed.RetryAfter = retryAfter(response.Header)
	case typed.Code == accessDenied && !s.login.valid(ctx):
		return provider.Unauthenticated("Vault no longer accepts the login: its token has ended or was revoked")
	}

	return typed
}

// absence is what Vault's answer 404 means. An engine of version 1 answers in
// the same way whether a secret is absent or was asked for as one of version 2;
// then the engine's version decides, where the token may see it.
func (s *Store) absence(ctx context.Context, client *api.Client, from location, key, version string, body []byte) error {
	err := from.absence(key, version, body)
	if !from.v2 || provider.AsError(err).Code != codes.NotFound {
		return err
	}

	if s.version(ctx, client, from.mount) == "1" {
		return provider.InvalidConfig("cannot read secret %q: the engine at %q is of version 1, spec.version says v2", key, from.mount)
	}

	return err
}

// version of the engine at a mount, asked for once; empty where Vault does not
// tell.
func (s *Store) version(ctx context.Context, client *api.Client, mount string) string {
	s.mu.Lock()
	known, asked := s.versions[mount]
	s.mu.Unlock()

	if asked {
		return known
	}

	secret, err := client.Logical().ReadWithContext(ctx, "sys/internal/ui/mounts/"+mount)

	var response *api.ResponseError
	if err != nil && !errors.As(err, &response) {
		return ""
	}

	var version string

	if secret != nil && secret.Data["type"] == "kv" {
		options, _ := secret.Data["options"].(map[string]any)
		// An engine that was made without options is of version 1.
		if version, _ = options["version"].(string); version == "" {
			version = "1"
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.versions[mount] = version

	return version
}
