package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/external-secrets/eso/sdk/internal/pkitest"
)

const operator = "spiffe://external-secrets.io/operator"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a set of files, what serves them, and a clock.
type server struct {
	t     *testing.T
	dir   string
	files *Files
	// config is that of the listener, which lives as long as the server.
	config *tls.Config

	reloads atomic.Int32
	mu      sync.Mutex
	now     time.Time
	log     bytes.Buffer
}

func (s *server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.now
}

func (s *server) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.log.Write(line)
}

func (s *server) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.log.String()
}

func (s *server) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.now = s.now.Add(d)
}

func newServer(t *testing.T, pair pkitest.Pair, bundle []byte) *server {
	t.Helper()

	s := &server{t: t, dir: t.TempDir(), now: time.Now()}
	pkitest.Write(t, s.dir, pair, bundle)

	var err error
	if s.files, err = Load(Options{
		Dir: s.dir, ClientURI: operator, Now: s.Now, Log: slog.New(slog.NewTextHandler(s, nil)),
		Reloaded: func() { s.reloads.Add(1) },
	}); err != nil {
		t.Fatal(err)
	}

	s.config = s.files.Config()

	return s
}

// handshake connects a client through a pipe. It gives the serial number of the
// certificate that the client saw, and why the server refused the client.
func (s *server) handshake(client *tls.Config) (*big.Int, error) {
	s.t.Helper()

	left, right := net.Pipe()
	refusal := make(chan error, 1)

	go func() {
		server := tls.Server(right, s.config)
		err := server.HandshakeContext(s.t.Context())

		if err == nil {
			_, err = server.Write([]byte("hello"))
		}

		refusal <- errors.Join(err, right.Close())
	}()

	conn := tls.Client(left, client)
	// In TLS 1.3 the client sees only with the first bytes whether the server
	// accepts it.
	greeting, readErr := io.ReadAll(conn)
	err := <-refusal
	_ = left.Close()

	if err == nil && (string(greeting) != "hello" || readErr != nil) {
		s.t.Errorf("the server took the client, and the client got %q, %v", greeting, readErr)
	}

	if err != nil && len(greeting) > 0 {
		s.t.Errorf("the server refused the client and sent %q", greeting)
	}

	if certificates := conn.ConnectionState().PeerCertificates; len(certificates) > 0 {
		return certificates[0].SerialNumber, err
	}

	return nil, err
}

// serves fails the test unless the server takes the client and shows that
// certificate.
func (s *server) serves(client *tls.Config, want pkitest.Pair, why string) {
	s.t.Helper()

	got, err := s.handshake(client)
	if err != nil {
		s.t.Fatalf("%s: refused: %v", why, err)
	}

	if got.Cmp(want.Certificate.Leaf.SerialNumber) != 0 {
		s.t.Fatalf("%s: another certificate was served", why)
	}
}

func clientOf(ca *pkitest.CA, pairs ...pkitest.Pair) *tls.Config {
	config := &tls.Config{ServerName: "127.0.0.1", RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	for _, pair := range pairs {
		config.Certificates = append(config.Certificates, pair.Certificate)
	}

	return config
}

func TestVerifiesTheClient(t *testing.T) {
	ca, otherCA := pkitest.New(t, "own"), pkitest.New(t, "other")
	good := []string{operator}

	for _, test := range []struct {
		name, why string
		client    func() *tls.Config
		refusal   string
	}{
		{
			name: "the operator", why: "it is the one that is served",
			client: func() *tls.Config { return clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: good})) },
		},
		{
			name: "several identities", why: "a SPIFFE issuer may add its own",
			client: func() *tls.Config {
				return clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{"spiffe://cluster/ns/a", operator}}))
			},
		},
		{
			name: "no certificate", why: "a client that can connect to the port must not read secrets",
			client:  func() *tls.Config { return clientOf(ca) },
			refusal: "didn't provide a certificate",
		},
		{
			name: "expired", why: "a leaked key becomes useless when its certificate expires",
			client: func() *tls.Config {
				return clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: good, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Minute)}))
			},
			refusal: "expired",
		},
		{
			name: "not yet valid", why: "nor before its time",
			client: func() *tls.Config {
				return clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: good, NotBefore: time.Now().Add(time.Hour)}))
			},
			refusal: "not yet valid",
		},
		{
			name: "another authority", why: "any user can create a certificate with the operator's name",
			client: func() *tls.Config {
				config := clientOf(ca)
				pair := otherCA.Issue(t, pkitest.Leaf{URIs: good})
				// Without this the client would see that the server does not
				// want it, and send nothing.
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair.Certificate, nil }

				return config
			},
			refusal: "unknown authority",
		},
		{
			name: "another provider", why: "its certificate is of the same authority: a provider may not call another",
			client: func() *tls.Config {
				return clientOf(ca, ca.Issue(t, pkitest.Leaf{CommonName: "fake", URIs: []string{"spiffe://external-secrets.io/provider/fake"}}))
			},
			refusal: `client certificate of "fake" is not for "` + operator + `"`,
		},
		{
			name: "longer identity", why: "the identity is compared whole, not by its beginning",
			client: func() *tls.Config {
				return clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{operator + "/x", operator + "?a=b", operator + "#x"}}))
			},
			refusal: "is not for",
		},
		{
			name: "identity as common name", why: "a name that any certificate may carry says nothing",
			client: func() *tls.Config {
				return clientOf(ca, ca.Issue(t, pkitest.Leaf{CommonName: operator}))
			},
			refusal: "is not for",
		},
		{
			name: "server certificate", why: "one that was issued for serving is not for calling",
			client: func() *tls.Config {
				return clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: good, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}))
			},
			refusal: "incompatible key usage",
		},
		{
			name: "TLS 1.2", why: "the operator speaks 1.3; nothing older need be kept safe",
			client: func() *tls.Config {
				config := clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: good}))
				config.MaxVersion = tls.VersionTLS12

				return config
			},
			refusal: "unsupported versions",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, ca.Issue(t, pkitest.Leaf{}), ca.PEM)

			_, err := s.handshake(test.client())

			switch {
			case test.refusal == "" && err != nil:
				t.Errorf("%s: refused: %v", test.why, err)
			case test.refusal != "" && err == nil:
				t.Errorf("%s: it was served", test.why)
			case test.refusal != "" && !strings.Contains(err.Error(), test.refusal):
				t.Errorf("%s: refused with %q, which does not say %q", test.why, err, test.refusal)
			}
		})
	}
}

// The clock that decides on the client's certificate is the one of the options,
// so that tests of expiry need not wait.
func TestVerifiesByItsClock(t *testing.T) {
	ca := pkitest.New(t, "own")
	s := newServer(t, ca.Issue(t, pkitest.Leaf{}), ca.PEM)
	client := clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{operator}, NotAfter: time.Now().Add(time.Hour)}))

	if _, err := s.handshake(client); err != nil {
		t.Fatal(err)
	}

	s.pass(2 * time.Hour)

	if _, err := s.handshake(client); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("a certificate that has expired since was taken: %v", err)
	}
}

func TestReloads(t *testing.T) {
	ca := pkitest.New(t, "own")
	first, second := ca.Issue(t, pkitest.Leaf{}), ca.Issue(t, pkitest.Leaf{NotAfter: time.Now().Add(48 * time.Hour)})
	client := clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{operator}}))
	s := newServer(t, first, ca.PEM)

	s.serves(client, first, "what was loaded")

	pkitest.Write(t, s.dir, second, ca.PEM)
	s.serves(client, first, "within a second of the last look nothing is read")

	s.pass(time.Second)
	s.serves(client, second, "a second later it is looked again")

	if got, want := s.files.Expires(), second.Certificate.Leaf.NotAfter; !got.Equal(want) {
		t.Errorf("expires at %s, not %s", got, want)
	}

	s.pass(time.Second)
	s.serves(client, second, "nothing has changed")

	if n := s.reloads.Load(); n != 2 {
		t.Errorf("%d reloads were counted, not 2", n)
	}

	if n := strings.Count(s.logged(), "reloaded the TLS files"); n != 1 {
		t.Errorf("%d lines of reloads, not 1:\n%s", n, s.logged())
	}
}

func TestReloadsAfterTheClockJumpedBack(t *testing.T) {
	ca := pkitest.New(t, "own")
	first, second := ca.Issue(t, pkitest.Leaf{}), ca.Issue(t, pkitest.Leaf{})
	client := clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{operator}}))
	s := newServer(t, first, ca.PEM)

	s.pass(time.Hour)
	s.serves(client, first, "the last look is in an hour")

	s.pass(-30 * time.Minute)
	pkitest.Write(t, s.dir, second, ca.PEM)
	s.serves(client, second, "half an hour earlier it must not wait until then")
}

// Old and new authority overlap until all certificates are renewed.
func TestFollowsTheAuthority(t *testing.T) {
	before, after := pkitest.New(t, "old"), pkitest.New(t, "new")
	leaf := pkitest.Leaf{URIs: []string{operator}}
	pair := before.Issue(t, pkitest.Leaf{})
	oldClient, newClient := clientOf(before, before.Issue(t, leaf)), clientOf(before, after.Issue(t, leaf))
	newClient.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &newClient.Certificates[0], nil }
	oldClient.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &oldClient.Certificates[0], nil }

	s := newServer(t, pair, before.PEM)

	for _, step := range []struct {
		bundle       []byte
		oldOK, newOK bool
		why          string
	}{
		{bundle: before.PEM, oldOK: true, why: "only the old authority counts"},
		{bundle: append(bytes.Clone(before.PEM), after.PEM...), oldOK: true, newOK: true, why: "both count"},
		{bundle: after.PEM, newOK: true, why: "only the new authority counts"},
	} {
		pkitest.Write(t, s.dir, pair, step.bundle)
		s.pass(time.Second)

		_, oldErr := s.handshake(oldClient)
		_, newErr := s.handshake(newClient)

		if (oldErr == nil) != step.oldOK || (newErr == nil) != step.newOK {
			t.Errorf("%s: old client: %v; new client: %v", step.why, oldErr, newErr)
		}
	}
}

func TestKeepsWhatIsGood(t *testing.T) {
	ca := pkitest.New(t, "own")
	first, second := ca.Issue(t, pkitest.Leaf{}), ca.Issue(t, pkitest.Leaf{})
	client := clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{operator}}))

	for _, test := range []struct {
		name, why string
		file      string
		content   []byte
	}{
		{name: "certificate before key", why: "files are replaced one after the other", file: "tls.crt", content: second.CertificatePEM},
		{name: "key before certificate", why: "in any order", file: "tls.key", content: second.KeyPEM},
		{name: "half a certificate", why: "a write may be seen before it is over", file: "tls.crt", content: second.CertificatePEM[:len(second.CertificatePEM)/2]},
		{name: "empty key", why: "likewise", file: "tls.key", content: nil},
		{name: "garbage", why: "the server keeps serving with any content", file: "tls.crt", content: []byte("\x00garbage")},
		{name: "empty bundle", why: "an empty pool must not replace the pinned authority", file: "ca.crt", content: nil},
		{name: "bundle of garbage", why: "likewise", file: "ca.crt", content: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, first, ca.PEM)

			if err := os.WriteFile(filepath.Join(s.dir, test.file), test.content, 0o600); err != nil {
				t.Fatal(err)
			}

			for range 3 {
				s.pass(time.Second)
				s.serves(client, first, test.why)
			}

			if n := strings.Count(s.logged(), "cannot reload"); n != 1 {
				t.Errorf("%d complaints about the same files, not 1:\n%s", n, s.logged())
			}

			if strings.Contains(s.logged(), "PRIVATE KEY") {
				t.Errorf("the log quotes a key:\n%s", s.logged())
			}

			pkitest.Write(t, s.dir, second, ca.PEM)
			s.pass(time.Second)
			s.serves(client, second, "once the files are good they are used")
		})
	}

	t.Run("missing file", func(t *testing.T) {
		s := newServer(t, first, ca.PEM)

		if err := os.Remove(filepath.Join(s.dir, "tls.key")); err != nil {
			t.Fatal(err)
		}

		s.pass(time.Second)
		s.serves(client, first, "a volume may be away for a moment")

		if !strings.Contains(s.logged(), "cannot read TLS file") {
			t.Errorf("the failure is not logged:\n%s", s.logged())
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	ca := pkitest.New(t, "own")
	pair := ca.Issue(t, pkitest.Leaf{})

	for _, test := range []struct {
		name, why string
		uri       string
		spoil     string
		want      string
	}{
		{name: "no identity", why: "an empty one would be found in no certificate, or in any", want: "no client identity"},
		{name: "no certificate", why: "there is nothing good to fall back to", uri: operator, spoil: "tls.crt", want: "cannot use tls.crt and tls.key"},
		{name: "no authority", why: "likewise", uri: operator, spoil: "ca.crt", want: "it holds no PEM certificate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			pkitest.Write(t, dir, pair, ca.PEM)

			if test.spoil != "" {
				if err := os.WriteFile(filepath.Join(dir, test.spoil), []byte("garbage"), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			if _, err := Load(Options{Dir: dir, ClientURI: test.uri}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, which does not say %q", test.why, err, test.want)
			}
		})
	}

	if _, err := Load(Options{Dir: t.TempDir(), ClientURI: operator}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
}

// A resumed session would go on with what has been replaced.
func TestResumesNoSession(t *testing.T) {
	ca := pkitest.New(t, "own")
	s := newServer(t, ca.Issue(t, pkitest.Leaf{}), ca.PEM)
	client := clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{operator}}))
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)

	var resumed bool

	client.VerifyConnection = func(state tls.ConnectionState) error {
		resumed = resumed || state.DidResume

		return nil
	}

	for range 2 {
		if _, err := s.handshake(client); err != nil {
			t.Fatal(err)
		}
	}

	if resumed {
		t.Error("the second handshake resumed the first one's session")
	}
}

// For the race detector: handshakes while the files are being replaced.
func TestHandshakesWhileFilesChange(t *testing.T) {
	ca := pkitest.New(t, "own")
	pairs := []pkitest.Pair{ca.Issue(t, pkitest.Leaf{}), ca.Issue(t, pkitest.Leaf{})}
	client := clientOf(ca, ca.Issue(t, pkitest.Leaf{URIs: []string{operator}}))
	s := newServer(t, pairs[0], ca.PEM)

	var wait sync.WaitGroup

	for range 4 {
		wait.Go(func() {
			for range 10 {
				if _, err := s.handshake(client); err != nil {
					t.Errorf("refused while the files change: %v", err)
				}
			}
		})
	}

	for i := range 20 {
		s.pass(time.Second)
		pkitest.Write(t, s.dir, pairs[i%2], ca.PEM)
		_ = s.files.Expires()
	}

	wait.Wait()
}
