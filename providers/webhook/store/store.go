package store

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

// maxRevision bounds the ETag in a revision, in bytes.
const maxRevision = 256

// Store is one HTTP API.
type Store struct {
	client *client
	result *result
	read   *endpoint
	// push, remove and exists are nil where the config has none.
	push, remove, exists *endpoint
	ownerHeader          string
	// single has the credentials with one key, secrets has all of them.
	single  map[string]string
	secrets map[string]map[string]string
	// config identifies the config in revisions.
	config   string
	warnings []string
	locks    locks
}

var (
	_ provider.Reader  = (*Store)(nil)
	_ provider.Pusher  = (*Store)(nil)
	_ provider.Deleter = (*Store)(nil)
	_ provider.Checker = (*Store)(nil)
)

// New returns the store of a config. It checks all templates, and does not call
// the API.
func (e *egressPolicy) New(ctx context.Context, env provider.Environment, config *v2alpha1.Webhook) (*Store, error) {
	spec := &config.Spec

	s := &Store{locks: newLocks(), ownerHeader: spec.OwnerHeader, single: map[string]string{}, secrets: map[string]map[string]string{}}

	if err := s.resolve(ctx, env, spec); err != nil {
		return nil, err
	}

	if err := s.endpoints(spec); err != nil {
		return nil, err
	}

	for _, endpoint := range s.all() {
		if err := s.settle(e, endpoint); err != nil {
			return nil, err
		}
	}

	text, err := json.Marshal(spec)
	if err != nil {
		return nil, provider.InvalidConfig("spec cannot be written as JSON")
	}

	s.config = short(text)

	tlsConfig, err := tlsOf(ctx, env, spec)
	if err != nil {
		return nil, err
	}

	transport := func() *http.Transport {
		transport := e.transport()
		transport.TLSClientConfig = tlsConfig

		return transport
	}

	var base http.RoundTripper

	if spec.Auth != nil {
		if base, err = s.ntlm(ctx, env, &spec.Auth.NTLM, transport); err != nil {
			return nil, err
		}
	} else {
		base = transport()
	}

	s.client = newClient(env, spec, base)

	if spec.Auth != nil {
		s.client.turns = make(chan struct{}, maxLanes)
	}

	return s, nil
}

func newClient(env provider.Environment, spec *v2alpha1.WebhookSpec, base http.RoundTripper) *client {
	c := &client{
		timeout: defaultTimeout, retries: defaultRetries, interval: defaultInterval, now: time.Now,
		notFound: []int{http.StatusNotFound},
		http: &http.Client{
			Transport: backend.NewTransport(backend.Options{
				Base: base, Calls: env.Calls, Operation: operationOf, RequestsPerSecond: int(spec.RequestsPerSecond), MaxAnswer: maxAnswer,
			}),
			// A credential may be in any header, and would be sent there.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}

	if spec.Timeout != nil && spec.Timeout.Duration > 0 {
		c.timeout = spec.Timeout.Duration
	}

	if env.Retry.MaxRetries != nil {
		c.retries = max(0, *env.Retry.MaxRetries)
	}

	if env.Retry.Interval > 0 {
		c.interval = env.Retry.Interval
	}

	if len(spec.NotFound) > 0 {
		c.notFound = nil
		for _, status := range spec.NotFound {
			c.notFound = append(c.notFound, int(status))
		}
	}

	return c
}

// resolve reads the credentials.
func (s *Store) resolve(ctx context.Context, env provider.Environment, spec *v2alpha1.WebhookSpec) error {
	for i, secret := range spec.Secrets {
		name, key := secret.Name, secret.SecretRef.Key

		if slices.Contains([]string{nameRemoteRef, nameSecrets, nameValue, nameOwner, nameAdopt, nameRevision}, name) {
			return provider.InvalidConfig("spec.secrets[%d].name: %q is a name that templates use already", i, name)
		}

		if _, twice := s.secrets[name][key]; twice {
			return provider.InvalidConfig("spec.secrets[%d]: name %q with key %q is there twice", i, name, key)
		}

		value, err := env.References.SecretKey(ctx, secret.SecretRef)
		if err != nil {
			return err
		}

		if s.secrets[name] == nil {
			s.secrets[name] = map[string]string{}
		}

		s.secrets[name][key] = string(value)
	}

	for name, keys := range s.secrets {
		for _, value := range keys {
			if len(keys) == 1 {
				s.single[name] = value
			}
		}
	}

	return nil
}

// vocabulary returns the values that templates of an operation may use.
func (s *Store) vocabulary(operation string) vocabulary {
	known := vocabulary{nameRemoteRef: {nameKey, nameProperty, nameRemoteKey}, nameSecrets: {}}

	for name, keys := range s.secrets {
		known[name] = []string{}
		for key := range keys {
			known[name] = append(known[name], key)
		}
	}

	for name := range s.single {
		known[nameSecrets] = append(known[nameSecrets], name)
	}

	switch operation {
	case operationRead:
		known[nameRemoteRef] = append(known[nameRemoteRef], nameVersion)
	case operationPush:
		known[nameValue], known[nameOwner], known[nameAdopt], known[nameRevision] = nil, nil, nil, nil
	case operationDelete:
		known[nameOwner], known[nameRevision] = nil, nil
	}

	return known
}

// endpoints parses the templates.
func (s *Store) endpoints(spec *v2alpha1.WebhookSpec) error {
	common := map[string]header{}
	if err := headersOf("spec", spec.Headers, common); err != nil {
		return err
	}

	var err error

	s.read, err = newEndpoint(section{
		field: "spec", operation: operationRead, method: either(spec.Method, http.MethodGet), url: spec.URL, urlField: "spec.url",
		body: spec.Body, headers: common, known: s.vocabulary(operationRead),
	})
	if err != nil {
		return err
	}

	if s.result, err = parseResult(spec.Result.JSONPath); err != nil {
		return err
	}

	for _, other := range []struct {
		into              **endpoint
		request           *v2alpha1.WebhookRequest
		operation, method string
		body              string
	}{
		{&s.push, spec.Push, operationPush, http.MethodPut, "{{ .value }}"},
		{&s.remove, spec.Delete, operationDelete, http.MethodDelete, ""},
		{&s.exists, spec.Exists, operationExists, http.MethodHead, ""},
	} {
		if other.request == nil {
			continue
		}

		field := "spec." + other.operation
		headers := maps.Clone(common)

		if err := headersOf(field, other.request.Headers, headers); err != nil {
			return err
		}

		urlField := field + ".url"
		if other.request.URL == "" {
			urlField = "spec.url"
		}

		*other.into, err = newEndpoint(section{
			field: field, operation: other.operation, method: either(other.request.Method, other.method),
			url: either(other.request.URL, spec.URL), urlField: urlField,
			body: either(other.request.Body, other.body), headers: headers, known: s.vocabulary(other.operation),
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// all endpoints that the config has.
func (s *Store) all() []*endpoint {
	return slices.DeleteFunc([]*endpoint{s.read, s.push, s.remove, s.exists}, func(e *endpoint) bool { return e == nil })
}

// settle checks an endpoint before it is used.
func (s *Store) settle(e *egressPolicy, endpoint *endpoint) error {
	field := endpoint.url.field

	if err := e.checkHost(endpoint.origin); err != nil {
		if refused, ok := errors.AsType[*addressError](err); ok {
			return refused.invalid(field)
		}

		return err
	}

	if warning := field + " is plain HTTP: credentials and secrets are sent unencrypted"; endpoint.origin.Scheme == "http" && !slices.Contains(s.warnings, warning) {
		s.warnings = append(s.warnings, warning)
	}

	// An error that no value can avoid is reported now.
	for _, t := range endpoint.texts() {
		if !t.constant() {
			continue
		}

		made, err := t.render(s.data(values{}))
		if err != nil {
			return err
		}

		switch {
		case t == endpoint.url:
			if _, err := endpoint.locate(made); err != nil {
				return t.invalid("%v", err)
			}
		case t != endpoint.body && strings.ContainsAny(made, "\r\n"):
			return t.invalid("the value holds a line break, which no header can: does a key of a Secret end with one? Then add | trim")
		}
	}

	return nil
}

// tlsOf returns the TLS settings.
func tlsOf(ctx context.Context, env provider.Environment, spec *v2alpha1.WebhookSpec) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	bundle, field := spec.CABundle, "spec.caBundle"

	if spec.CAProvider != nil {
		field = "spec.caProvider"

		var err error
		if bundle, err = env.References.CABundle(ctx, *spec.CAProvider); err != nil {
			return nil, err
		}
	}

	if len(bundle) > 0 || spec.CAProvider != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, provider.InvalidConfig("%s holds no PEM certificate", field)
		}
	}

	if spec.ClientTLS == nil {
		return config, nil
	}

	certificate, err := env.References.SecretKey(ctx, spec.ClientTLS.CertSecretRef)
	if err != nil {
		return nil, err
	}

	key, err := env.References.SecretKey(ctx, spec.ClientTLS.KeySecretRef)
	if err != nil {
		return nil, err
	}

	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		// The library's error may quote the file.
		return nil, provider.InvalidConfig("spec.clientTLS: certificate and key are no pair in PEM: look at key %q of Secret %q and key %q of Secret %q",
			spec.ClientTLS.CertSecretRef.Key, spec.ClientTLS.CertSecretRef.Name, spec.ClientTLS.KeySecretRef.Key, spec.ClientTLS.KeySecretRef.Name)
	}

	config.Certificates = []tls.Certificate{pair}

	return config, nil
}

// Validate returns the warnings about the config. It sends no request: no key is
// known.
func (s *Store) Validate(context.Context) (provider.Validation, error) {
	return provider.Validation{Unknown: true, Message: "only a read shows whether the API accepts the requests", Warnings: s.warnings}, nil
}

// Close ends idle connections.
func (s *Store) Close(context.Context) error {
	s.client.http.CloseIdleConnections()

	return nil
}

// errNotModified means that the caller's revision is the current one.
var errNotModified = errors.New("not modified")

// asked is one request of a batch, and the revision that its callers know.
type asked struct {
	call *call
	etag string
}

// Read sends each distinct request once, however many reads need it. If the
// request has no property, properties are selected from its response.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	results := make([]provider.Result, len(reads))
	requests := map[string]*asked{}
	of := make([]string, len(reads))

	for i, read := range reads {
		call, err := s.reading(read.Key, read.Property, read.Version, read.Metadata)
		if err != nil {
			results[i].Err = about("read secret", read.Key, err)

			continue
		}

		of[i] = call.identity()
		etag := s.etag(read.KnownRevision)

		if known, again := requests[of[i]]; !again {
			requests[of[i]] = &asked{call: call, etag: etag}
		} else if known.etag != etag {
			known.etag = ""
		}
	}

	batch := make([]provider.Read, 0, len(requests))
	place := map[string]int{}

	for identity := range requests {
		place[identity] = len(batch)
		batch = append(batch, provider.Read{Key: identity})
	}

	answers := document.Read(ctx, batch, func(ctx context.Context, identity, _ string, _ bool) (document.Document, error) {
		d, err := s.fetch(ctx, requests[identity])

		return d.Document, err
	})

	for i, read := range reads {
		if results[i].Err == nil {
			results[i] = s.answer(read, answers[place[of[i]]])
		}
	}

	return results
}

// reading returns the request that reads a secret.
func (s *Store) reading(key, property, version string, metadata bool) (*call, error) {
	if metadata {
		return nil, provider.Unsupported("metadataPolicy: Fetch: the provider does not support metadata")
	}

	if version != "" && !s.read.uses[nameVersion] && !s.result.uses(nameVersion) {
		return nil, provider.InvalidRequest("version is set, and spec.url, headers and body do not name .remoteRef.version: the latest would be read")
	}

	return s.read.render(s.data(values{key: key, property: property, version: version}))
}

// perProperty reports whether the requests of the config read single properties.
func (s *Store) perProperty() bool { return s.read.uses[nameProperty] || s.result.uses(nameProperty) }

// answer returns the result of one read from the response to its request.
func (s *Store) answer(read provider.Read, fetched provider.Result) provider.Result {
	if errors.Is(fetched.Err, errNotModified) {
		return provider.Result{NotModified: true, Revision: read.KnownRevision}
	}

	if fetched.Err != nil {
		return provider.Result{Err: about("read secret", read.Key, fetched.Err)}
	}

	wanted := values{key: read.Key, property: read.Property, version: read.Version}

	raw, err := s.result.find(wanted, fetched.Value, s.data(wanted))
	if err != nil {
		return provider.Result{Err: err}
	}

	if s.perProperty() {
		read.Property = ""
	}

	return document.Answer(read, document.Document{Raw: raw, Revision: fetched.Revision})
}

// fetched is a secret of the API.
type fetched struct {
	document.Document

	etag, owner string
}

// fetch performs a request that reads.
func (s *Store) fetch(ctx context.Context, asked *asked) (fetched, error) {
	call := asked.call
	if asked.etag != "" && call.header.Get("If-None-Match") == "" {
		call.header.Set("If-None-Match", asked.etag)
	}

	got, err := s.client.do(ctx, call)

	switch {
	case err != nil:
		return fetched{}, err
	case s.client.absent(got.status):
		return fetched{}, provider.NotFound("%s answers %d: there is no such secret", call.shown, got.status)
	case got.status == http.StatusNotModified && asked.etag == "":
		return fetched{}, item(provider.Unavailable("%s answers 304 to an unconditional request", call.shown))
	case got.status == http.StatusNotModified:
		return fetched{}, errNotModified
	}

	etag := got.header.Get("ETag")
	if len(etag) > maxRevision {
		etag = ""
	}

	return fetched{
		Document: document.Document{Raw: got.body, Revision: s.revision(etag, got.body)}, etag: etag, owner: got.header.Get(s.ownerHeader),
	}, nil
}

// revision returns the revision of a response: the API's ETag, else a hash of its
// body. It is specific to this config: another one may select something else from
// the same response.
func (s *Store) revision(etag string, body []byte) string {
	if etag != "" {
		return s.config + ":" + etag
	}

	return s.config + "#" + short(body)
}

// etag returns the ETag of a revision of this config; empty for any other.
func (s *Store) etag(revision string) string {
	etag, own := strings.CutPrefix(revision, s.config+":")
	if !own {
		return ""
	}

	return etag
}

func short(content []byte) string {
	sum := sha256.Sum256(content)

	return hex.EncodeToString(sum[:8])
}

// about adds what failed to an error of this provider.
func about(what, key string, err error) error {
	var typed *provider.Error
	if !errors.As(err, &typed) {
		return err
	}

	named := *typed
	named.Message = fmt.Sprintf("cannot %s %q: %s", what, key, typed.Message)

	return &named
}

func either(given, fallback string) string {
	if given == "" {
		return fallback
	}

	return given
}
