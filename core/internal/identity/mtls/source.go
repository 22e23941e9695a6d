package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// secretTimeout bounds the reading of a Secret in a handshake.
	secretTimeout = 5 * time.Second
	// svidTimeout bounds the wait for the Workload API's first answer.
	svidTimeout = 5 * time.Second
	// maxBundleBytes bounds a bundle of authorities in a Secret.
	maxBundleBytes = 1 << 20
)

// Own gives the operator's own certificate and the authorities that a
// provider's of its own making must chain to.
type Own interface {
	ClientTLS(ctx context.Context) (*tls.Certificate, *x509.CertPool, error)
}

// Options of a Source.
type Options struct {
	// Own certificates; required.
	Own Own
	// Reader of Secrets with certificates and authorities. It must not be a
	// cache: what a handshake uses is to be that of the moment.
	Reader client.Reader
	// WorkloadAPI is the address of the SPIFFE Workload API, such as
	// unix:///run/spire/agent.sock; empty means that there is none.
	WorkloadAPI string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Source gives the TLS settings of each handshake.
type Source struct {
	options Options

	// turn is held by who starts the watch of the Workload API or ends it.
	turn  chan struct{}
	svids *workloadapi.X509Source
}

// NewSource returns a source. It asks for nothing before the first handshake.
func NewSource(options Options) *Source {
	if options.Now == nil {
		options.Now = time.Now
	}

	return &Source{options: options, turn: make(chan struct{}, 1)}
}

// Close ends the watch of the Workload API.
func (s *Source) Close() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()

	if s.svids != nil {
		_ = s.svids.Close()
		s.svids = nil
	}
}

// ClientTLS gives the settings for one handshake.
func (s *Source) ClientTLS(ctx context.Context, t Trust) (*tls.Config, error) {
	if t.SPIFFE {
		return s.svid(ctx, t)
	}

	own, authorities, err := s.ownTLS(ctx, t)
	if err != nil {
		return nil, err
	}

	if t.Certificate != (types.NamespacedName{}) {
		if own, err = s.certificate(ctx, t.Certificate); err != nil {
			return nil, err
		}
	}

	if t.Authorities != (Authorities{}) {
		if authorities, err = s.authorities(ctx, t.Authorities); err != nil {
			return nil, err
		}
	}

	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ServerName:   t.ServerName,
		RootCAs:      authorities,
		Certificates: []tls.Certificate{*own},
		Time:         s.options.Now,
		VerifyConnection: func(state tls.ConnectionState) error {
			return pinned(state.PeerCertificates[0], t.Identity)
		},
	}, nil
}

// ownTLS is asked only for what is not elsewhere: an authority of the operator's
// that is broken must not break providers that do without.
func (s *Source) ownTLS(ctx context.Context, t Trust) (*tls.Certificate, *x509.CertPool, error) {
	if t.Certificate != (types.NamespacedName{}) && t.Authorities != (Authorities{}) {
		return nil, nil, nil
	}

	return s.options.Own.ClientTLS(ctx)
}

// pinned checks the provider's identity: two providers may share a host.
func pinned(leaf *x509.Certificate, identity string) error {
	if identity == "" {
		return nil
	}

	for _, uri := range leaf.URIs {
		if uri.String() == identity {
			return nil
		}
	}

	return fmt.Errorf("x509: the certificate of %q is not for %q", leaf.Subject.CommonName, identity)
}

// certificate reads the one that a store shows.
func (s *Source) certificate(ctx context.Context, name types.NamespacedName) (*tls.Certificate, error) {
	data, err := s.secret(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("cannot use the client certificate: %w", err)
	}

	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		if len(data[key]) == 0 {
			return nil, fmt.Errorf("cannot use the client certificate: Secret %q in namespace %q has no %s: it must be of type kubernetes.io/tls", name.Name, name.Namespace, key)
		}
	}

	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		// The library's text describes formats, such as a missing block, and holds
		// no byte of the key.
		return nil, fmt.Errorf("cannot use the client certificate in Secret %q of namespace %q: %w", name.Name, name.Namespace, err)
	}

	now := s.options.Now()

	// A provider refuses these without a word that would help.
	switch {
	case now.After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("cannot use the client certificate in Secret %q of namespace %q: it expired at %s", name.Name, name.Namespace, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(pair.Leaf.NotBefore):
		return nil, fmt.Errorf("cannot use the client certificate in Secret %q of namespace %q: it is not valid before %s", name.Name, name.Namespace, pair.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}

	return &pair, nil
}

func (s *Source) authorities(ctx context.Context, a Authorities) (*x509.CertPool, error) {
	if a.System {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("cannot read the machine's certificate authorities: %w", err)
		}

		return pool, nil
	}

	bundle, where := []byte(a.Bundle), "spec.tls.caBundle"

	if a.Secret != (types.NamespacedName{}) {
		data, err := s.secret(ctx, a.Secret)
		if err != nil {
			return nil, fmt.Errorf("cannot use the provider's certificate authorities: %w", err)
		}

		bundle, where = data[a.Key], fmt.Sprintf("key %q of Secret %q in namespace %q", a.Key, a.Secret.Name, a.Secret.Namespace)
	}

	if len(bundle) > maxBundleBytes {
		return nil, fmt.Errorf("cannot use the provider's certificate authorities: %s has %d bytes, more than %d", where, len(bundle), maxBundleBytes)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("cannot use the provider's certificate authorities: %s holds no PEM certificate", where)
	}

	return pool, nil
}

func (s *Source) secret(ctx context.Context, name types.NamespacedName) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()

	secret := &corev1.Secret{}

	err := s.options.Reader.Get(ctx, name, secret)

	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("Secret %q does not exist in namespace %q", name.Name, name.Namespace) //nolint:staticcheck // a kind's name
	case err != nil:
		return nil, fmt.Errorf("cannot read Secret %q in namespace %q: %w", name.Name, name.Namespace, err)
	}

	return secret.Data, nil
}

// svid gives settings with the SPIFFE identities of the moment.
func (s *Source) svid(ctx context.Context, t Trust) (*tls.Config, error) {
	source, err := s.workload(ctx)
	if err != nil {
		return nil, err
	}

	own, err := source.GetX509SVID()
	if err != nil {
		return nil, fmt.Errorf("cannot take the operator's SVID from the Workload API: %w", err)
	}

	authorize := tlsconfig.AuthorizeMemberOf(own.ID.TrustDomain())

	if t.ServerID != "" {
		id, err := spiffeid.FromString(t.ServerID)
		if err != nil {
			return nil, fmt.Errorf("cannot use SPIFFE ID %q: %w", t.ServerID, err)
		}

		if t.OwnDomain && id.TrustDomain() != own.ID.TrustDomain() {
			return nil, fmt.Errorf("cannot use SPIFFE ID %q: it is not of the operator's own trust domain, %q", t.ServerID, own.ID.TrustDomain())
		}

		authorize = tlsconfig.AuthorizeID(id)
	}

	config := tlsconfig.MTLSClientConfig(source, source, authorize)
	config.MinVersion = tls.VersionTLS13

	return config, nil
}

// workload begins to watch the Workload API at the first need.
func (s *Source) workload(ctx context.Context) (*workloadapi.X509Source, error) {
	if s.options.WorkloadAPI == "" {
		return nil, errors.New("cannot use SPIFFE: the operator's --spiffe-endpoint-socket is not set")
	}

	ctx, cancel := context.WithTimeout(ctx, svidTimeout)
	defer cancel()

	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot take SVIDs from the Workload API at %s: it does not answer", s.options.WorkloadAPI)
	}

	if s.svids != nil {
		// The library gives up for good where the agent refuses the workload.
		if svid, err := s.svids.GetX509SVID(); err == nil && s.options.Now().Before(svid.Certificates[0].NotAfter) {
			return s.svids, nil
		}

		_ = s.svids.Close()
		s.svids = nil
	}

	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr(s.options.WorkloadAPI)))
	if err != nil {
		return nil, fmt.Errorf("cannot take SVIDs from the Workload API at %s: %w", s.options.WorkloadAPI, err)
	}

	s.svids = source

	return source, nil
}
