package template

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // the function has it
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"hash"
	"math/big"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"
	"software.sslmate.com/src/go-pkcs12"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}

	return value
}

// pki is a chain, its keys, and what is made of them.
type pki struct {
	leaf, intermediate, root *x509.Certificate
	leafKey                  *ecdsa.PrivateKey
	rsaKey                   *rsa.PrivateKey
}

func issue(serial int64, name string, ca bool, key crypto.Signer, parent *x509.Certificate, parentKey crypto.Signer) *x509.Certificate {
	id := sha256.Sum256(must(x509.MarshalPKIXPublicKey(key.Public())))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, IsCA: ca, BasicConstraintsValid: true, SubjectKeyId: id[:],
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}

	if !ca {
		template.DNSNames = []string{"a.example", "b.example"}
		template.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)}
		template.EmailAddresses = []string{"me@a.example"}
		template.URIs = []*url.URL{{Scheme: "spiffe", Host: "a.example", Path: "/x"}}
	}

	if parent == nil {
		parent, parentKey = template, key
	}

	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey))))
}

func ecKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

var made = sync.OnceValue(func() pki {
	rootKey, intermediateKey := ecKey(), ecKey()
	p := pki{leafKey: ecKey(), rsaKey: must(rsa.GenerateKey(rand.Reader, 2048))}
	p.root = issue(1, "root", true, rootKey, nil, nil)
	p.intermediate = issue(2, "intermediate", true, intermediateKey, p.root, rootKey)
	p.leaf = issue(3, "leaf", false, p.leafKey, p.intermediate, intermediateKey)

	return p
})

func oaep(h hash.Hash, key *rsa.PrivateKey) string {
	return string(must(rsa.EncryptOAEP(h, rand.Reader, &key.PublicKey, []byte("decrypted"), nil)))
}

var data = sync.OnceValue(func() map[string]string {
	p := made()
	leaf, intermediate, root := encode(typeCertificate, p.leaf.Raw), encode(typeCertificate, p.intermediate.Raw), encode(typeCertificate, p.root.Raw)
	others := []*x509.Certificate{p.intermediate, p.root}

	return map[string]string{
		"number":       "42",
		"with-dash":    "dashed",
		"json":         `{"a":1}`,
		"leaf":         leaf,
		"intermediate": intermediate,
		"root":         root,
		"chain":        leaf + intermediate + root,
		"leafKey":      must(encodeKey(p.leafKey)),
		"leafPublic":   encode(typePublicKey, must(x509.MarshalPKIXPublicKey(p.leafKey.Public()))),
		"rsaKey":       must(encodeKey(p.rsaKey)),
		"p12":          string(must(pkcs12.Modern2023.Encode(p.leafKey, p.leaf, others, ""))),
		"p12Pass":      string(must(pkcs12.Modern2023.Encode(p.leafKey, p.leaf, others, "123"))),
		"jwk":          string(must(json.Marshal(jose.JSONWebKey{Key: p.leafKey}))),
		"jwkPublic":    string(must(json.Marshal(jose.JSONWebKey{Key: p.leafKey.Public()}))),
		"oaep1":        oaep(sha1.New(), p.rsaKey), //nolint:gosec // the function has it
		"oaep256":      oaep(sha256.New(), p.rsaKey),
		"oaep512":      oaep(sha512.New(), p.rsaKey),
	}
})

func fixtures(t *testing.T) map[string]string {
	t.Helper()

	return data()
}
