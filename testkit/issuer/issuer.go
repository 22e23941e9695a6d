// Package issuer is a certificate authority for tests that stand for an
// organization with certificates of its own.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

// An Issuer is a certificate authority. Its certificates are valid for an hour at
// most.
type Issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New creates an authority.
func New(t *testing.T) *Issuer {
	t.Helper()

	i := &Issuer{}
	i.certificate, i.key = i.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "corp"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	})

	return i
}

// Sign issues a certificate from a template, with a new key. Its serial number and
// the begin of its validity are set.
func (i *Issuer) Sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)

	parent, signer := template, key
	if i.certificate != nil {
		parent, signer = i.certificate, i.key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	return certificate, key
}

// Issue returns tls.crt, tls.key and ca.crt for an identity on loopback.
func (i *Issuer) Issue(t *testing.T, identity string, until time.Time) map[string][]byte {
	t.Helper()

	uri, err := url.Parse(identity)
	if err != nil {
		t.Fatal(err)
	}

	certificate, key := i.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: identity}, URIs: []*url.URL{uri}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})

	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}

	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		"ca.crt":  i.Bundle(),
	}
}

// Bundle is the certificate of the authority, as PEM.
func (i *Issuer) Bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw})
}

// Folder writes files, such as those of Issue, to a folder of the test.
func Folder(t *testing.T, files map[string][]byte) string {
	t.Helper()

	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}
