package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
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
	maxInterval     = 10 * time.Second
	requestTimeout  = 20 * time.Second
	// maxAnswer bounds an answer of a server that the config's author chose.
	maxAnswer = 8 << 20
	// maxRedirect bounds what is read of one that only redirects.
	maxRedirect = 64 << 10
)

// Backend makes the stores of a process, which share connections and logins.
type Backend struct {
	connections connections
	now         func() time.Time
	tokenFile   string
	// google is the way to Google Cloud.
	google http.RoundTripper
}

// NewBackend makes one.
func NewBackend() *Backend {
	return &Backend{connections: connections{shared: map[string]*connection{}}, now: time.Now, google: http.DefaultTransport}
}

// Flags registers the provider's own flags.
func (b *Backend) Flags(flags *flag.FlagSet) {
	flags.StringVar(&b.tokenFile, "service-account-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token",
		"file with the token of the provider's own ServiceAccount, for configs that may use it (--own-identity-namespace)")
}

// Store reads and writes one key/value engine.
type Store struct {
	client      *api.Client
	connection  *connection
	connections *connections
	engine      engine
	login       *login
	spec        v2alpha1.VaultSpec
	tempo       tempo

	mu sync.Mutex
	// versions of engines, by mount, as far as they were looked up.
	versions map[string]string
}

var (
	_ provider.Reader  = (*Store)(nil)
	_ provider.Finder  = (*Store)(nil)
	_ provider.Pusher  = (*Store)(nil)
	_ provider.Deleter = (*Store)(nil)
	_ provider.Checker = (*Store)(nil)
	_ provider.Watcher = (*Store)(nil)
)

// Open makes the store of a config and logs in.
func (b *Backend) Open(ctx context.Context, env provider.Environment, config *v2alpha1.Vault) (*Store, error) {
	spec := config.Spec
	how := credentials{auth: spec.Auth, references: env.References, own: env.OwnIdentity, namespace: config.Namespace, tokenFile: b.tokenFile, google: b.google}

	bundle, err := authorities(ctx, env, &spec)
	if err != nil {
		return nil, err
	}

	digest, err := how.digest(ctx, &spec, bundle)
	if err != nil {
		return nil, err
	}

	certificate, err := how.clientCertificate(ctx, &spec)
	if err != nil {
		return nil, err
	}

	shared, err := b.connections.acquire(digest, func() (*connection, error) { return b.dial(env, &spec, bundle, certificate, how) })
	if err != nil {
		return nil, err
	}

	client, err := newClient(shared.http, env, &spec)
	if err == nil {
		_, err = shared.login.token(ctx)
	}

	if err != nil {
		// One that could not log in has nothing to revoke.
		_ = b.connections.release(ctx, shared)

		return nil, err
	}

	return &Store{
		client: client, connection: shared, connections: &b.connections, login: shared.login, spec: spec,
		engine: engine{mount: spec.Path, version: spec.Version}, versions: map[string]string{},
		tempo: tempo{patience: patience, pulse: pulse, pong: pong, lookup: lookup, handshake: requestTimeout},
	}, nil
}

// dial makes a connection; its login follows with the first call.
func (b *Backend) dial(env provider.Environment, spec *v2alpha1.VaultSpec, bundle []byte, certificate *tls.Certificate, how credentials) (*connection, error) {
	var roots *x509.CertPool

	if len(bundle) > 0 {
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
	}

	httpClient := newHTTPClient(env, spec, roots, certificate)

	client, err := newClient(httpClient, env, spec)
	if err != nil {
		return nil, err
	}

	return &connection{http: httpClient, login: &login{client: client, credentials: how, now: b.now}}, nil
}

// drained ends what Vault's library leaves open: the answer that redirects.
type drained struct{ *http.Transport }

// RoundTrip performs a request.
func (d drained) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := d.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}

	if response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest {
		// Read to its end, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, response.Body, maxRedirect)
		response.Body.Close()
		response.Body = http.NoBody
	}

	return response, nil
}

// unrepeatedKey of a context says that its requests are made once.
type unrepeatedKey struct{}

func unrepeated(ctx context.Context) context.Context {
	return context.WithValue(ctx, unrepeatedKey{}, true)
}

// retry decides on another try. One that Vault puts off is the operator's to
// make: it is told when, and waits without keeping anybody.
func retry(ctx context.Context, response *http.Response, err error) (bool, error) {
	// So is one that the store's own limit puts off.
	if typed := (*provider.Error)(nil); errors.As(err, &typed) {
		return false, err
	}

	if err == nil && response.StatusCode == http.StatusTooManyRequests || ctx.Value(unrepeatedKey{}) != nil {
		return false, nil
	}

	return api.DefaultRetryPolicy(ctx, response, err)
}

// backoff doubles the interval that the store object asks for. The library's
// own would take any time from it to the longest.
func backoff(interval, longest time.Duration, attempt int, _ *http.Response) time.Duration {
	return min(interval<<min(attempt, 10), longest)
}

// authorities gives the bundle of spec.caBundle or spec.caProvider; empty means
// that the system's count.
func authorities(ctx context.Context, env provider.Environment, spec *v2alpha1.VaultSpec) ([]byte, error) {
	bundle, field := spec.CABundle, "spec.caBundle"

	if spec.CAProvider != nil {
		field = "spec.caProvider"

		var err error
		if bundle, err = env.References.CABundle(ctx, *spec.CAProvider); err != nil {
			return nil, err
		}
	}

	if len(bundle) == 0 && spec.CAProvider == nil {
		return nil, nil
	}

	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return nil, provider.InvalidConfig("%s holds no PEM certificate", field)
	}

	return bundle, nil
}

// Read reads each key and version once, however many properties of it are
// asked for.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	return document.Read(ctx, reads, s.fetch)
}

// Validate asks Vault whether the login holds.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	if err := s.login.check(ctx); err != nil {
		if provider.AsError(err).Code == codes.Unauthenticated {
			s.connections.forget(s.connection)
		}

		return provider.Validation{}, err
	}

	if strings.HasPrefix(s.spec.Server, "http://") {
		return provider.Validation{Warnings: []string{"spec.server is plain HTTP: token and secrets travel unprotected"}}, nil
	}

	return provider.Validation{}, nil
}

// Close revokes the login where no other store shares it, unless it is a token
// that the config names.
func (s *Store) Close(ctx context.Context) error {
	return s.connections.release(ctx, s.connection)
}

// ended is what to answer when Vault no longer accepts the login. Stores that
// are made from now on log in anew.
func (s *Store) ended() error {
	s.connections.forget(s.connection)

	return provider.Unauthenticated("Vault no longer accepts the login: its token has ended or was revoked")
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
		return document.Document{}, s.refusal(ctx, client, "read", from, key, version, response, err)
	}

	secret, err := api.ParseSecret(response.Body)
	if err != nil {
		return document.Document{}, unreadable("read secret \""+key+"\"", err)
	}

	return from.document(key, version, secret)
}

// refusal makes Vault's refusal one that the operator understands. Vault
// answers 403 both to a token that has ended and to one without the right to
// what was asked; only asking about the token tells them apart.
func (s *Store) refusal(ctx context.Context, client *api.Client, verb string, from location, key, version string, response *api.Response, err error) error {
	typed := provider.AsError(requestError(verb+" secret \""+key+"\"", err))

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
		return s.ended()
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
