package ca

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// ensureTimeout bounds the reading and writing of the CA's Secret.
const ensureTimeout = 10 * time.Second

// Keys of the CA's Secret.
const (
	keyBundle      = "ca.crt"
	keyActiveCert  = "active.crt"
	keyActiveKey   = "active.key"
	keyNextCert    = "next.crt"
	keyNextKey     = "next.key"
	keyRetiredCert = "retired.crt"
)

// Options of an Authority. Zero values mean the defaults.
type Options struct {
	// Namespace of the CA's Secret; required.
	Namespace string
	// SecretName of the CA's Secret. Default external-secrets-ca.
	SecretName string
	// CALifetime. Default one year.
	CALifetime time.Duration
	// LeafLifetime of the certificates that are issued. Default 24 hours; they
	// are renewed when two thirds of it are over.
	LeafLifetime time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Authority issues certificates.
type Authority struct {
	client  client.Client
	options Options
	changed chan event.GenericEvent

	mu    sync.Mutex
	state *state
	own   *tls.Certificate
	renew time.Time
}

// state is the content of the CA's Secret.
type state struct {
	active  pair
	next    *pair
	retired []*x509.Certificate
}

// New returns an authority whose Secret is read and written with c, which must
// not be a cache.
func New(c client.Client, options Options) *Authority {
	if options.SecretName == "" {
		options.SecretName = "external-secrets-ca"
	}

	if options.CALifetime == 0 {
		options.CALifetime = 365 * 24 * time.Hour
	}

	if options.LeafLifetime == 0 {
		options.LeafLifetime = 24 * time.Hour
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	return &Authority{client: c, options: options, changed: make(chan event.GenericEvent, 1)}
}

// Changed gets an event when the bundle changes: certificates that were handed
// out must be distributed again. Events that have not been received yet are merged.
func (a *Authority) Changed() <-chan event.GenericEvent { return a.changed }

// NeedLeaderElection says that only the leader issues.
func (a *Authority) NeedLeaderElection() bool { return true }

// Start keeps the CA fresh until ctx ends.
func (a *Authority) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := a.Ensure(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "cannot keep the certificate authority")
		}
	}, min(time.Minute, a.overlap()/4))

	return nil
}

// overlap is how long a new CA is published before it signs.
func (a *Authority) overlap() time.Duration {
	return min(a.options.LeafLifetime, a.options.CALifetime/6)
}

// Ensure reads the CA, and creates or renews it if that is due.
func (a *Authority) Ensure(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.ensureLocked(ctx)
}

func (a *Authority) ensureLocked(ctx context.Context) error {
	// Handshakes wait for this meanwhile.
	ctx, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()

	var secret corev1.Secret

	name := client.ObjectKey{Namespace: a.options.Namespace, Name: a.options.SecretName}

	err := a.client.Get(ctx, name, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot read the CA's Secret %s: %w", name, err)
	}

	missing := err != nil

	var current *state
	if !missing {
		if current, err = parseState(secret.Data); err != nil {
			return fmt.Errorf("cannot use the CA in Secret %s, delete it, and a new one is created: %w", name, err)
		}
	}

	wanted, dirty, err := a.step(current)
	if err != nil {
		return err
	}

	if dirty {
		if secret.Data, err = wanted.data(); err != nil {
			return err
		}

		if missing {
			secret.ObjectMeta = metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
			err = a.client.Create(ctx, &secret)
		} else {
			err = a.client.Update(ctx, &secret)
		}

		if err != nil {
			return fmt.Errorf("cannot write the CA's Secret %s: %w", name, err)
		}
	}

	before := a.state
	a.state = wanted

	// Certificates of another CA may no longer be accepted by any provider.
	if before != nil && !before.active.cert.Equal(wanted.active.cert) {
		a.own = nil
	}

	if before == nil || !bytes.Equal(before.bundle(), wanted.bundle()) {
		select {
		case a.changed <- event.GenericEvent{Object: &secret}:
		default:
		}
	}

	return nil
}

// step gives the state that should follow, and whether it differs. A nil state
// is that of an operator that was never run.
func (a *Authority) step(current *state) (*state, bool, error) {
	now := a.options.Now()

	if current == nil || now.After(current.active.cert.NotAfter) {
		active, err := newCA(now, a.options.CALifetime)
		if err != nil {
			return nil, false, err
		}

		return &state{active: active}, true, nil
	}

	wanted := &state{active: current.active, next: current.next}
	for _, cert := range current.retired {
		if now.Before(cert.NotAfter) {
			wanted.retired = append(wanted.retired, cert)
		}
	}

	dirty := len(wanted.retired) != len(current.retired)

	switch {
	case wanted.next == nil && !now.Before(renewAt(wanted.active.cert)):
		next, err := newCA(now, a.options.CALifetime)
		if err != nil {
			return nil, false, err
		}

		wanted.next, dirty = &next, true
	case wanted.next != nil && !now.Before(wanted.next.cert.NotBefore.Add(backdate).Add(a.overlap())):
		wanted.retired = append(wanted.retired, wanted.active.cert)
		wanted.active, wanted.next, dirty = *wanted.next, nil, true
	}

	return wanted, dirty, nil
}

// ClientTLS gives the operator's own certificate and the authorities that a
// provider's must chain to.
func (a *Authority) ClientTLS(ctx context.Context) (*tls.Certificate, *x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.state == nil {
		if err := a.ensureLocked(ctx); err != nil {
			return nil, nil, err
		}
	}

	now := a.options.Now()
	if a.own == nil || !now.Before(a.renew) || now.Before(a.own.Leaf.NotBefore) {
		leaf, err := newLeaf(a.state.active, leafRequest{
			commonName: "external-secrets-operator", identity: pb.OperatorIdentity, usage: x509.ExtKeyUsageClientAuth,
		}, now, a.options.LeafLifetime)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot issue the operator's certificate: %w", err)
		}

		a.own = &tls.Certificate{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key, Leaf: leaf.cert}
		a.renew = renewAt(leaf.cert)
	}

	pool := x509.NewCertPool()
	for _, cert := range a.state.authorities() {
		pool.AddCert(cert)
	}

	return a.own, pool, nil
}

// Expires returns when the authority and the operator's own certificate expire; zero
// for what there is not yet.
func (a *Authority) Expires() (authority, own time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.state != nil {
		authority = a.state.active.cert.NotAfter
	}

	if a.own != nil {
		own = a.own.Leaf.NotAfter
	}

	return authority, own
}

// ServerCertificate is a provider's certificate with what belongs to it.
type ServerCertificate struct {
	// Certificate, Key and CA in PEM.
	Certificate, Key, CA []byte
	// Fingerprint of the CA bundle.
	Fingerprint string
	// NotAfter is when the certificate ends, RenewAt when to replace it.
	NotAfter, RenewAt time.Time
}

// IssueServer issues a certificate for a SecretProvider that listens on the
// given hosts.
func (a *Authority) IssueServer(ctx context.Context, provider string, hosts []string) (*ServerCertificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.state == nil {
		if err := a.ensureLocked(ctx); err != nil {
			return nil, err
		}
	}

	if len(hosts) == 0 {
		return nil, errors.New("cannot issue a certificate for no host")
	}

	leaf, err := newLeaf(a.state.active, leafRequest{
		commonName: provider, identity: pb.ProviderIdentityPrefix + provider, hosts: hosts, usage: x509.ExtKeyUsageServerAuth,
	}, a.options.Now(), a.options.LeafLifetime)
	if err != nil {
		return nil, fmt.Errorf("cannot issue the certificate of provider %q: %w", provider, err)
	}

	key, err := leaf.keyPEM()
	if err != nil {
		return nil, err
	}

	bundle := a.state.bundle()

	return &ServerCertificate{
		Certificate: leaf.certPEM(), Key: key, CA: bundle, Fingerprint: fingerprint(bundle),
		NotAfter: leaf.cert.NotAfter, RenewAt: renewAt(leaf.cert),
	}, nil
}

// Fingerprint of the present CA bundle.
func (a *Authority) Fingerprint(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.state == nil {
		if err := a.ensureLocked(ctx); err != nil {
			return "", err
		}
	}

	return fingerprint(a.state.bundle()), nil
}

// Now is the authority's clock.
func (a *Authority) Now() time.Time { return a.options.Now() }

func fingerprint(bundle []byte) string {
	digest := sha256.Sum256(bundle)

	return hex.EncodeToString(digest[:8])
}

// authorities whose certificates are accepted: the active one, the next, and
// those that have signed before.
func (s *state) authorities() []*x509.Certificate {
	certs := []*x509.Certificate{s.active.cert}
	if s.next != nil {
		certs = append(certs, s.next.cert)
	}

	return append(certs, s.retired...)
}

func (s *state) bundle() []byte {
	var bundle []byte
	for _, cert := range s.authorities() {
		bundle = append(bundle, pair{cert: cert}.certPEM()...)
	}

	return bundle
}

func (s *state) data() (map[string][]byte, error) {
	activeKey, err := s.active.keyPEM()
	if err != nil {
		return nil, err
	}

	data := map[string][]byte{keyBundle: s.bundle(), keyActiveCert: s.active.certPEM(), keyActiveKey: activeKey}

	if s.next != nil {
		nextKey, err := s.next.keyPEM()
		if err != nil {
			return nil, err
		}

		data[keyNextCert], data[keyNextKey] = s.next.certPEM(), nextKey
	}

	if len(s.retired) > 0 {
		var retired []byte
		for _, cert := range s.retired {
			retired = append(retired, pair{cert: cert}.certPEM()...)
		}

		data[keyRetiredCert] = retired
	}

	return data, nil
}

func parseState(data map[string][]byte) (*state, error) {
	var (
		s   state
		err error
	)

	if s.active, err = parsePair(data[keyActiveCert], data[keyActiveKey]); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", keyActiveCert, keyActiveKey, err)
	}

	if len(data[keyNextCert]) > 0 {
		next, err := parsePair(data[keyNextCert], data[keyNextKey])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", keyNextCert, keyNextKey, err)
		}

		s.next = &next
	}

	if s.retired, err = parseBundle(data[keyRetiredCert]); err != nil {
		return nil, fmt.Errorf("%s: %w", keyRetiredCert, err)
	}

	return &s, nil
}
