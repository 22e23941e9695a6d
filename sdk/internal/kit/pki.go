package kit

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// authority issues certificates, or only verifies them.
type authority struct {
	pem         []byte
	certificate *x509.Certificate
	key         crypto.Signer
}

// leaf describes a certificate.
type leaf struct {
	name   string
	uri    string
	host   string
	client bool
	ended  bool
}

// pair is a certificate and its key.
type pair struct {
	certificatePEM, keyPEM []byte
	certificate            tls.Certificate
}

// newAuthority returns one.
func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot create a key: %w", err)
	}

	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot create a certificate authority: %w", err)
	}

	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cannot create a certificate authority: %w", err)
	}

	return &authority{pem: encode("CERTIFICATE", der), certificate: certificate, key: key}, nil
}

// readAuthority reads one; without a key file it signs nothing.
func readAuthority(certFile, keyFile string) (*authority, error) {
	text, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("cannot use tls.caFile: %w", err)
	}

	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("cannot use tls.caFile: %s holds no PEM certificate", certFile)
	}

	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot use tls.caFile: %w", err)
	}

	a := &authority{pem: text, certificate: certificate}
	if keyFile == "" {
		return a, nil
	}

	loaded, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("cannot use tls.caKeyFile: %w", err)
	}

	var ok bool
	if a.key, ok = loaded.PrivateKey.(crypto.Signer); !ok || !certificate.IsCA {
		return nil, errors.New("cannot use tls.caKeyFile: the first certificate of tls.caFile is no authority's")
	}

	return a, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.pem)

	return pool
}

// issue returns a new certificate.
func (a *authority) issue(l leaf) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("cannot create a key: %w", err)
	}

	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: l.name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}

	if l.client {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}

	if l.ended {
		template.NotAfter = time.Now().Add(-time.Minute)
	}

	if l.uri != "" {
		uri, err := url.Parse(l.uri)
		if err != nil {
			return pair{}, fmt.Errorf("cannot use the identity %q: %w", l.uri, err)
		}

		template.URIs = []*url.URL{uri}
	}

	if ip := net.ParseIP(l.host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else if l.host != "" {
		template.DNSNames = []string{l.host}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("cannot create a certificate: %w", err)
	}

	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("cannot encode a key: %w", err)
	}

	made := pair{certificatePEM: encode("CERTIFICATE", der), keyPEM: encode("PRIVATE KEY", keyDER)}
	if made.certificate, err = tls.X509KeyPair(made.certificatePEM, made.keyPEM); err != nil {
		return pair{}, fmt.Errorf("cannot use a certificate: %w", err)
	}

	return made, nil
}

// write puts a server's files into a folder, which only this user reads.
func (a *authority) write(dir, host string) error {
	server, err := a.issue(leaf{name: "provider", uri: pb.ProviderIdentityPrefix + "conformance", host: host})
	if err != nil {
		return err
	}

	for name, content := range map[string][]byte{"tls.crt": server.certificatePEM, "tls.key": server.keyPEM, "ca.crt": a.pem} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("cannot write the provider's certificate: %w", err)
		}
	}

	return nil
}

func serial() *big.Int {
	var bytes [15]byte

	_, _ = rand.Read(bytes[:]) // never fails, says crypto/rand

	return new(big.Int).SetBytes(bytes[:])
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// hostOf is the host of an address.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}

	return host
}
