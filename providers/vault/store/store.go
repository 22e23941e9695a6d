package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
	defaultRetries  = 2
	defaultInterval = time.Second
	maxInterval     = 10 * time.Second
	requestTimeout  = 20 * time.Second
	// maxAnswer bounds a response, in bytes: the author of a config chooses the server.
	maxAnswer = 8 << 20
	// maxRedirect bounds how much is read of a response that only redirects.
	maxRedirect = 64 << 10
)

// process constructs the stores of a process, which share connections and logins.
type process struct {
	connections connections
	now         func() time.Time
	tokenFile   string
	// google performs the requests to Google Cloud.
	google http.RoundTripper
}

// newProcess returns a process without connections.
func newProcess() *process {
	return &process{connections: connections{shared: map[string]*connection{}}, now: time.Now, google: http.DefaultTransport}
}

// register adds the provider's own flags.
func (p *process) register(flags *flag.FlagSet) {
	flags.StringVar(&p.tokenFile, "service-account-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token",
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
	timing      timing

	mu sync.Mutex
	// versions of the engines that were looked up, by mount.
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

// New returns the store of a config, logged in.
func (p *process) New(ctx context.Context, env provider.Environment, config *v2alpha1.Vault) (*Store, error) {
	spec := config.Spec
	how := credentials{auth: spec.Auth, references: env.References, own: env.OwnIdentity, namespace: config.Namespace, tokenFile: p.tokenFile, google: p.google}

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

	shared, err := p.connections.acquire(digest, func() (*connection, error) { return p.dial(env, &spec, bundle, certificate, how) })
	if err != nil {
		return nil, err
	}

	client, err := newClient(shared.http, env, &spec)
	if err == nil {
		_, err = shared.login.token(ctx)
	}

	if err != nil {
		// Without a login there is nothing to revoke.
		_ = p.connections.release(ctx, shared)

		return nil, err
	}

	return &Store{
		client: client, connection: shared, connections: &p.connections, login: shared.login, spec: spec,
		engine: engine{mount: spec.Path, version: spec.Version}, versions: map[string]string{},
		timing: timing{backoffStep: backoffStep, checkInterval: checkInterval, pongTimeout: pongTimeout, lookupInterval: lookupInterval, handshake: requestTimeout},
	}, nil
}

// dial returns a connection, which logs in at the first call.
func (p *process) dial(env provider.Environment, spec *v2alpha1.VaultSpec, bundle []byte, certificate *tls.Certificate, how credentials) (*connection, error) {
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

	return &connection{http: httpClient, login: &login{client: client, credentials: how, now: p.now}}, nil
}

// drained closes the responses that Vault's library leaves open: redirects.
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

// authorities returns the bundle of spec.caBundle or spec.caProvider; empty means
// the system's authorities.
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

// Validate looks up the login's token.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	if err := s.login.check(ctx); err != nil {
		if provider.AsError(err).Code == codes.Unauthenticated {
			s.connections.forget(s.connection)
		}

		return provider.Validation{}, err
	}

	if strings.HasPrefix(s.spec.Server, "http://") {
		return provider.Validation{Warnings: []string{"spec.server is plain HTTP: token and secrets are sent unencrypted"}}, nil
	}

	return provider.Validation{}, nil
}

// Close revokes the login unless another store uses it too, or the config names the
// token.
func (s *Store) Close(ctx context.Context) error {
	return s.connections.release(ctx, s.connection)
}

// ended returns the error of a login that Vault no longer accepts. Stores that are
// constructed afterwards log in again.
func (s *Store) ended() error {
	s.connections.forget(s.connection)

	return provider.Unauthenticated("Vault no longer accepts the login: its token has expired or was revoked")
}
