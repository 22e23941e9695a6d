package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// backdate makes a certificate valid a little before it is made, for clocks
// that are late.
const backdate = 5 * time.Minute

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (p pair) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw})
}

func (p pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// renewAt is when two thirds of the certificate's life are over.
func renewAt(cert *x509.Certificate) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore.Add(backdate))

	return cert.NotAfter.Add(-life / 3)
}

func newCA(now time.Time, lifetime time.Duration) (pair, error) {
	return sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "external-secrets", Organization: []string{"external-secrets.io"}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil)
}

// leafRequest says what a certificate is for.
type leafRequest struct {
	commonName string
	identity   string
	hosts      []string
	usage      x509.ExtKeyUsage
}

func newLeaf(ca pair, request leafRequest, now time.Time, lifetime time.Duration) (pair, error) {
	identity, err := url.Parse(request.identity)
	if err != nil {
		return pair{}, fmt.Errorf("cannot use identity %q: %w", request.identity, err)
	}

	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: request.commonName},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{request.usage},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{identity},
	}

	for _, host := range request.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}

	return sign(template, &ca)
}

// sign creates a key and a certificate for it; without an issuer it signs
// itself.
func sign(template *x509.Certificate, issuer *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("cannot generate a key: %w", err)
	}

	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("cannot generate a serial number: %w", err)
	}

	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
		// A leaf must not promise more than its issuer.
		if template.NotAfter.After(parent.NotAfter) {
			template.NotAfter = parent.NotAfter
		}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return pair{}, fmt.Errorf("cannot sign a certificate: %w", err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("cannot read back a certificate: %w", err)
	}

	return pair{cert: cert, key: key}, nil
}

func parsePair(certPEM, keyPEM []byte) (pair, error) {
	certs, err := parseBundle(certPEM)
	if err != nil {
		return pair{}, err
	}

	if len(certs) != 1 {
		return pair{}, fmt.Errorf("expected one certificate, found %d", len(certs))
	}

	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return pair{}, errors.New("the key is not PEM")
	}

	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("cannot read the key: %w", err)
	}

	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, fmt.Errorf("the key is a %T, not ECDSA", parsed)
	}

	if !key.PublicKey.Equal(certs[0].PublicKey) {
		return pair{}, errors.New("the key is not the certificate's")
	}

	return pair{cert: certs[0], key: key}, nil
}

func parseBundle(bundle []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate

	for rest := bytes.TrimSpace(bundle); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("the certificates are not PEM")
		}

		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("cannot read a certificate: %w", err)
		}

		certs = append(certs, cert)
	}

	return certs, nil
}
