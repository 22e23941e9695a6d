package tlsfiles

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// Names of the files, as in a Secret of type kubernetes.io/tls.
const (
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
	caFile          = "ca.crt"
)

// Options of Files.
type Options struct {
	// Dir holds tls.crt, tls.key and ca.crt.
	Dir string
	// ClientURI is the URI name that a client's certificate must carry.
	ClientURI string
	// Interval is the minimum time between two reads of the files. 0 means one
	// second.
	Interval time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log gets a line for each reload and each failure to reload.
	Log *slog.Logger
	// Reloaded is called after each successful reload; may be nil.
	Reloaded func()
}

// Files is the TLS of a server, which is reloaded when its files change.
// Handshakes while the files are being replaced, or are invalid, use the former
// ones.
type Files struct {
	options Options

	mu      sync.Mutex
	looked  time.Time
	sum     [sha256.Size]byte
	failed  [sha256.Size]byte
	current *tls.Config
	leaf    *x509.Certificate
}

// Load reads the files for the first time.
func Load(options Options) (*Files, error) {
	if options.ClientURI == "" {
		return nil, errors.New("cannot serve TLS: no client identity to accept")
	}

	if options.Interval == 0 {
		options.Interval = time.Second
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	f := &Files{options: options}
	if err := f.reload(); err != nil {
		return nil, err
	}

	return f, nil
}

// Config returns the TLS configuration for a listener. It follows the files for
// as long as the listener lives.
func (f *Files) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return f.latest(), nil
		},
	}
}

// Follow reads the files periodically until ctx is done, so that they are
// reloaded without a handshake too.
func (f *Files) Follow(ctx context.Context) {
	tick := time.NewTicker(f.options.Interval)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.latest()
		}
	}
}

// Expires returns when the certificate in use ends.
func (f *Files) Expires() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.leaf.NotAfter
}

// ProviderIdentity returns the identity in the certificate that the operator has
// issued to this provider; empty if another authority has issued it.
func (f *Files) ProviderIdentity() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	for _, uri := range f.leaf.URIs {
		if identity := uri.String(); strings.HasPrefix(identity, pb.ProviderIdentityPrefix) {
			return identity
		}
	}

	return ""
}

func (f *Files) latest() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()

	now := f.options.Now()
	// A clock that was set back must not stop the reloads.
	if since := now.Sub(f.looked); since >= 0 && since < f.options.Interval {
		return f.current
	}

	f.looked = now

	if err := f.reloadLocked(); err != nil {
		f.options.Log.Error("cannot reload the TLS files; the former ones stay in use", "error", err.Error(), "expires", f.leaf.NotAfter)
	}

	return f.current
}

func (f *Files) reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.reloadLocked()
}

func (f *Files) reloadLocked() error {
	var contents [3][]byte

	sum := sha256.New()

	for i, name := range []string{certificateFile, keyFile, caFile} {
		data, err := os.ReadFile(filepath.Join(f.options.Dir, name))
		if err != nil {
			return fmt.Errorf("cannot read TLS file: %w", err)
		}

		contents[i] = data
		fmt.Fprintf(sum, "%d:", len(data))
		sum.Write(data)
	}

	now := [sha256.Size]byte(sum.Sum(nil))
	// An error is reported once, not at each handshake.
	if now == f.sum || now == f.failed {
		return nil
	}

	config, leaf, err := f.parse(contents)
	if err != nil {
		f.failed = now

		return err
	}

	if f.current != nil {
		f.options.Log.Info("reloaded the TLS files", "expires", leaf.NotAfter)
	}

	f.sum, f.current, f.leaf = now, config, leaf

	if f.options.Reloaded != nil {
		f.options.Reloaded()
	}

	return nil
}

func (f *Files) parse(contents [3][]byte) (*tls.Config, *x509.Certificate, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use %s and %s in %s: %w", certificateFile, keyFile, f.options.Dir, err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents[2]) {
		return nil, nil, fmt.Errorf("cannot use %s in %s: it holds no PEM certificate", caFile, f.options.Dir)
	}

	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		NextProtos:       []string{"h2"},
		Certificates:     []tls.Certificate{pair},
		ClientAuth:       tls.RequireAndVerifyClientCert,
		ClientCAs:        pool,
		Time:             f.options.Now,
		VerifyConnection: f.verify,
		// A resumed session would outlive the certificates of its handshake.
		SessionTicketsDisabled: true,
	}, pair.Leaf, nil
}

// verify pins the client's identity. A certificate of the CA is not sufficient,
// because one provider could then call another.
func (f *Files) verify(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]
	for _, uri := range leaf.URIs {
		if uri.String() == f.options.ClientURI {
			return nil
		}
	}

	return fmt.Errorf("client certificate of %q is not for %q", leaf.Subject.CommonName, f.options.ClientURI)
}
