package pkitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	// PEM of its certificate.
	PEM []byte

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Leaf describes a certificate. Zero values mean: valid from an hour ago for
// ten years, for clients and servers, and for 127.0.0.1.
type Leaf struct {
	CommonName          string
	URIs                []string
	NotBefore, NotAfter time.Time
	Usages              []x509.ExtKeyUsage
}

// Pair is a certificate and its key.
type Pair struct {
	// CertificatePEM and KeyPEM are the contents of tls.crt and tls.key.
	CertificatePEM, KeyPEM []byte
	// Certificate for use with package tls.
	Certificate tls.Certificate
}

// New returns an authority.
func New(t testing.TB, name string) *CA {
	t.Helper()

	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("cannot make a certificate authority: %v", err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("cannot make a certificate authority: %v", err)
	}

	return &CA{PEM: encode("CERTIFICATE", der), certificate: certificate, key: key}
}

// Issue makes a certificate.
func (ca *CA) Issue(t testing.TB, leaf Leaf) Pair {
	t.Helper()

	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: leaf.CommonName},
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, ExtKeyUsage: leaf.Usages,
		KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}

	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}

	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().AddDate(10, 0, 0)
	}

	if template.ExtKeyUsage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}

	for _, text := range leaf.URIs {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatalf("cannot make a certificate for %q: %v", text, err)
		}

		template.URIs = append(template.URIs, uri)
	}

	key := newKey(t)

	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		t.Fatalf("cannot make a certificate: %v", err)
	}

	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("cannot encode a key: %v", err)
	}

	pair := Pair{CertificatePEM: encode("CERTIFICATE", der), KeyPEM: encode("PRIVATE KEY", keyDER)}
	if pair.Certificate, err = tls.X509KeyPair(pair.CertificatePEM, pair.KeyPEM); err != nil {
		t.Fatalf("cannot use a certificate: %v", err)
	}

	return pair
}

// Pool holds the authority's certificate.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)

	return pool
}

// Write puts a server's files into a folder.
func Write(t testing.TB, dir string, pair Pair, bundle []byte) {
	t.Helper()

	for name, content := range map[string][]byte{"tls.crt": pair.CertificatePEM, "tls.key": pair.KeyPEM, "ca.crt": bundle} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("cannot make a key: %v", err)
	}

	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()

	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}

	return n
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
