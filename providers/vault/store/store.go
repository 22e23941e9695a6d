package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
	defaultRetries  = 2
	defaultInterval = time.Second
	requestTimeout  = 20 * time.Second
)

// Store reads one key/value engine.
type Store struct {
	client *api.Client
	engine engine
	login  *login
}

var _ provider.Reader = (*Store)(nil)

// New makes the store of a config and logs in.
func New(ctx context.Context, env provider.Environment, config *v2alpha1.Vault) (*Store, error) {
	client, err := newClient(ctx, env, &config.Spec)
	if err != nil {
		return nil, err
	}

	s := &Store{
		client: client,
		engine: engine{mount: config.Spec.Path, version: config.Spec.Version},
		login:  newLogin(client, &config.Spec, env.References),
	}

	if _, err := s.login.token(ctx); err != nil {
		return nil, err
	}

	return s, nil
}

func newClient(ctx context.Context, env provider.Environment, spec *v2alpha1.VaultSpec) (*api.Client, error) {
	roots, err := authorities(ctx, env, spec)
	if err != nil {
		return nil, err
	}

	transport, _ := http.DefaultTransport.(*http.Transport)
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	transport.MaxIdleConnsPerHost = 16

	retries, interval := defaultRetries, defaultInterval
	if env.Retry.MaxRetries != nil {
		retries = *env.Retry.MaxRetries
	}

	if env.Retry.Interval > 0 {
		interval = env.Retry.Interval
	}

	config := &api.Config{
		Address:      spec.Server,
		HttpClient:   &http.Client{Transport: transport, Timeout: requestTimeout},
		MaxRetries:   retries,
		MinRetryWait: interval,
		MaxRetryWait: max(interval, 10*time.Second),
		Timeout:      requestTimeout,
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
	return provider.Validation{}, s.login.check(ctx)
}

// Close revokes the login, unless it is a token that the config names.
func (s *Store) Close(ctx context.Context) error { return s.login.revoke(ctx) }

func (s *Store) fetch(ctx context.Context, key, version string, metadata bool) (document.Document, error) {
	from, err := s.engine.locate(key, version, metadata)
	if err != nil {
		return document.Document{}, err
	}

	token, err := s.login.token(ctx)
	if err != nil {
		return document.Document{}, err
	}

	client, err := s.client.CloneWithHeaders()
	if err != nil {
		return document.Document{}, provider.Unavailable("cannot prepare a request to Vault: %v", err)
	}

	client.SetToken(token)

	secret, err := client.Logical().ReadWithDataWithContext(ctx, from.path, from.query)
	if err != nil {
		return document.Document{}, s.readError(ctx, key, err)
	}

	return from.document(key, version, secret)
}

// readError makes Vault's refusal one that the operator understands. Vault
// answers 403 both to a token that has ended and to one without the right to
// read; only asking about the token tells them apart.
func (s *Store) readError(ctx context.Context, key string, err error) error {
	typed := requestError("read secret \""+key+"\"", err)

	if provider.AsError(typed).Code == accessDenied && !s.login.valid(ctx) {
		return provider.Unauthenticated("Vault no longer accepts the login: its token has ended or was revoked")
	}

	return typed
}
