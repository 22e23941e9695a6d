package mtls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// certificate for a server and a client of one name, signed by itself.
func certificate(t *testing.T, from, until time.Time) (pair tls.Certificate, certPEM, keyPEM []byte) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"provider"},
		NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})

	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}

	return pair, certPEM, keyPEM
}

// own is the operator's.
type own struct{ pair tls.Certificate }

func (o own) ClientTLS(context.Context) (*tls.Certificate, *x509.CertPool, error) {
	return &o.pair, x509.NewCertPool(), nil
}

func TestWhatAHandshakeIsMadeWith(t *testing.T) {
	t.Parallel()

	now := time.Now()
	mine, _, _ := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	server, serverPEM, _ := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	_, goodPEM, goodKey := certificate(t, now.Add(-time.Hour), now.Add(time.Hour))
	_, oldPEM, oldKey := certificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	_, earlyPEM, earlyKey := certificate(t, now.Add(time.Hour), now.Add(2*time.Hour))

	secret := func(name string, data map[string][]byte) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}
	}
	reader := fake.NewClientBuilder().WithObjects(
		secret("good", map[string][]byte{"tls.crt": goodPEM, "tls.key": goodKey, "ca.crt": serverPEM}),
		secret("old", map[string][]byte{"tls.crt": oldPEM, "tls.key": oldKey}),
		secret("early", map[string][]byte{"tls.crt": earlyPEM, "tls.key": earlyKey}),
		secret("halves", map[string][]byte{"tls.crt": goodPEM, "tls.key": oldKey}),
		secret("empty", nil),
		secret("nonsense", map[string][]byte{"tls.crt": []byte("nonsense"), "tls.key": []byte("nonsense"), "ca.crt": []byte("nonsense")}),
		secret("huge", map[string][]byte{"ca.crt": make([]byte, maxBundleBytes+1)}),
	).Build()
	source := NewSource(Options{Own: own{mine}, Reader: reader})

	name := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	known := Authorities{Bundle: string(serverPEM)}

	for _, c := range []struct {
		why   string
		trust Trust
		shown []byte
		want  string
	}{
		{why: "an authority that the registration holds", trust: Trust{ServerName: "provider", Authorities: known}, shown: mine.Certificate[0]},
		{why: "an authority in a Secret", trust: Trust{ServerName: "provider", Authorities: Authorities{Secret: name("good"), Key: "ca.crt"}}, shown: mine.Certificate[0]},
		{why: "the store's own certificate", trust: Trust{ServerName: "provider", Authorities: known, Certificate: name("good")}, shown: decode(t, goodPEM)},
		{why: "the operator's own authority does not know the provider", trust: Trust{ServerName: "provider"}, want: "unknown authority"},
		{why: "nor does the machine", trust: Trust{ServerName: "provider", Authorities: Authorities{System: true}}, want: "x509:"},
		{why: "another host", trust: Trust{ServerName: "other", Authorities: known}, want: "not other"},
		{why: "another identity", trust: Trust{ServerName: "provider", Authorities: known, Identity: "spiffe://x"}, want: `is not for "spiffe://x"`},
		{why: "a Secret that is not there", trust: Trust{Authorities: known, Certificate: name("absent")}, want: `Secret "absent" does not exist in namespace "ns"`},
		{why: "a Secret of another type", trust: Trust{Authorities: known, Certificate: name("empty")}, want: "has no tls.crt: it must be of type kubernetes.io/tls"},
		{why: "a certificate that is none", trust: Trust{Authorities: known, Certificate: name("nonsense")}, want: `in Secret "nonsense" of namespace "ns"`},
		{why: "a key of another certificate", trust: Trust{Authorities: known, Certificate: name("halves")}, want: "private key does not match"},
		{why: "an expired certificate", trust: Trust{Authorities: known, Certificate: name("old")}, want: "it expired at"},
		{why: "a certificate of the future", trust: Trust{Authorities: known, Certificate: name("early")}, want: "it is not valid before"},
		{why: "authorities that are none", trust: Trust{Authorities: Authorities{Bundle: "nonsense"}}, want: "spec.tls.caBundle holds no PEM certificate"},
		{why: "a key that the Secret lacks", trust: Trust{Authorities: Authorities{Secret: name("good"), Key: "other"}}, want: `key "other" of Secret "good"`},
		{why: "authorities without end", trust: Trust{Authorities: Authorities{Secret: name("huge"), Key: "ca.crt"}}, want: "more than 1048576"},
		{why: "SPIFFE without a Workload API", trust: Trust{SPIFFE: true}, want: "--spiffe-endpoint-socket is not set"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			shown, err := handshake(t, source, c.trust, server)

			switch {
			case c.want == "" && (err != nil || string(shown) != string(c.shown)):
				t.Errorf("the handshake failed, or another certificate was shown: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("err = %v; want %q", err, c.want)
			case err != nil && (strings.Contains(err.Error(), string(goodKey)) || strings.Contains(err.Error(), "PRIVATE")):
				t.Errorf("the error contains a key: %v", err)
			}
		})
	}
}

func decode(t *testing.T, certPEM []byte) []byte {
	t.Helper()

	block, _ := pem.Decode(certPEM)

	return block.Bytes
}

// handshake performs the handshake of a transport with a server, and returns the
// certificate that the server received.
func handshake(t *testing.T, source Credentials, wanted Trust, server tls.Certificate) (shown []byte, err error) {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	near, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()

	done := make(chan []byte, 1)

	go func() {
		far, err := listener.Accept()
		if err != nil {
			done <- nil

			return
		}

		conn := tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"}})
		defer conn.Close()

		if err := conn.HandshakeContext(t.Context()); err != nil || len(conn.ConnectionState().PeerCertificates) == 0 {
			done <- nil

			return
		}

		done <- conn.ConnectionState().PeerCertificates[0].Raw
	}()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	conn, _, err := Transport(source, wanted).ClientHandshake(ctx, "ignored", near)
	if err != nil {
		_ = near.Close()
		<-done

		return nil, err
	}

	shown = <-done
	_ = conn.Close()

	return shown, nil
}

// The peer of a socket is identified by its user.
func TestSocketPeer(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "s")

	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	for uid, want := range map[int]string{os.Getuid(): "", os.Getuid() + 1: "runs as user"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}

		_, _, err = Transport(nil, Trust{Socket: true, PeerUID: uid}).ClientHandshake(t.Context(), "", conn)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("user %d: err = %v", uid, err)
		}

		_ = conn.Close()
	}

	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()

	if _, _, err := Transport(nil, Trust{Socket: true}).ClientHandshake(t.Context(), "", near); err == nil {
		t.Error("a connection that is not a socket is accepted")
	}
}

// A Workload API that is not there is no reason to wait for ever, nor for all to
// wait in turn.
func TestWorkloadAPIThatIsAway(t *testing.T) {
	t.Parallel()

	source := NewSource(Options{WorkloadAPI: "unix://" + filepath.Join(t.TempDir(), "none")})
	defer source.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()

	failed := make(chan error, 3)
	for range cap(failed) {
		go func() {
			_, err := source.ClientTLS(ctx, Trust{SPIFFE: true})
			failed <- err
		}()
	}

	for range cap(failed) {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "Workload API") {
			t.Errorf("err = %v", err)
		}
	}
}

func TestBase(t *testing.T) {
	t.Parallel()

	base := Trust{ServerName: "a", Identity: "i"}

	for why, c := range map[string]struct {
		edit func(*Trust)
		want bool
	}{
		"itself":                      {func(*Trust) {}, true},
		"a store's own certificate":   {func(t *Trust) { t.Certificate.Name = "x" }, true},
		"a store's choice of SPIFFE":  {func(t *Trust) { t.SPIFFE, t.ServerID = true, "spiffe://x" }, true},
		"another authority":           {func(t *Trust) { t.Authorities.Bundle = "x" }, false},
		"another name":                {func(t *Trust) { t.ServerName = "b" }, false},
		"an identity that is no more": {func(t *Trust) { t.Identity = "" }, false},
	} {
		other := base
		c.edit(&other)

		if got := base.Base(other); got != c.want {
			t.Errorf("%s: %t", why, got)
		}
	}
}

var errNoOwn = errors.New("no authority")

type broken struct{}

func (broken) ClientTLS(context.Context) (*tls.Certificate, *x509.CertPool, error) {
	return nil, nil, errNoOwn
}

// Without certificates of its own the operator shows nothing.
func TestNoCertificateOfItsOwn(t *testing.T) {
	t.Parallel()

	if _, err := NewSource(Options{Own: broken{}}).ClientTLS(t.Context(), Trust{}); !errors.Is(err, errNoOwn) {
		t.Errorf("err = %v", err)
	}
}
