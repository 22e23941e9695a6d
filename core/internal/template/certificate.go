package template

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // some stores encrypt with it
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/pem"
	"hash"
	"strings"
)

const (
	typeCertificate = "CERTIFICATE"
	typePrivateKey  = "PRIVATE KEY"
	typePublicKey   = "PUBLIC KEY"

	// maxCertificates of a chain: each is compared with each.
	maxCertificates = 1000
)

// blocks of PEM in a text. What is between them is skipped; rest is what
// comes after the last.
func blocks(text string) (found []*pem.Block, rest string) {
	data := []byte(text)

	for {
		begin := bytes.Index(data, []byte("-----BEGIN"))
		if begin < 0 {
			return found, string(data)
		}

		block, after := pem.Decode(data[begin:])
		if block == nil {
			return found, string(data)
		}

		found, data = append(found, block), after
	}
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func encodeAll(certificates []*x509.Certificate) string {
	var all strings.Builder
	for _, c := range certificates {
		all.WriteString(encode(typeCertificate, c.Raw))
	}

	return all.String()
}

// filterPEM keeps the blocks of a type, in their order.
func filterPEM(kind, text string) (string, error) {
	var kept bytes.Buffer

	found, rest := blocks(text)
	for _, block := range found {
		if !strings.EqualFold(block.Type, kind) {
			continue
		}

		if err := pem.Encode(&kept, block); err != nil {
			return "", fail("a PEM block has headers that cannot be written")
		}
	}

	if kept.Len() == 0 && strings.TrimSpace(rest) != "" {
		return "", fail("the value is not PEM")
	}

	return kept.String(), nil
}

// parseCertificates of a text, of which there must be one at least. Other
// blocks, such as the key of a bundle, are skipped.
func parseCertificates(text string) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate

	found, _ := blocks(text)
	for _, block := range found {
		if block.Type != typeCertificate {
			continue
		}

		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fail("a PEM block of the type CERTIFICATE holds none")
		}

		certificates = append(certificates, certificate)
	}

	switch {
	case len(certificates) == 0:
		return nil, fail("the value holds no PEM certificate")
	case len(certificates) > maxCertificates:
		return nil, fail("the value holds more than %d certificates", maxCertificates)
	default:
		return certificates, nil
	}
}

// parseKey is the first private key of a text.
func parseKey(text string) (any, error) {
	found, _ := blocks(text)
	for _, block := range found {
		if !strings.HasSuffix(block.Type, typePrivateKey) {
			continue
		}

		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return nil, fail("the private key is encrypted")
		}

		// The type of a block is often wrong.
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			return key, nil
		}

		if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return key, nil
		}

		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return key, nil
		}

		return nil, fail("the private key cannot be read")
	}

	return nil, fail("the value holds no PEM private key")
}

// issued reports whether a may have been issued by b. This is about order, not
// about trust: no signature is checked.
func issued(a, b *x509.Certificate) bool {
	if !bytes.Equal(a.RawIssuer, b.RawSubject) {
		return false
	}

	return len(a.AuthorityKeyId) == 0 || len(b.SubjectKeyId) == 0 || bytes.Equal(a.AuthorityKeyId, b.SubjectKeyId)
}

func isRoot(c *x509.Certificate) bool { return issued(c, c) }

// order certificates from the leaf to the root. It fails unless all are of one
// chain.
func order(certificates []*x509.Certificate) ([]*x509.Certificate, error) {
	issuer := make([]int, len(certificates))
	issues := make([]bool, len(certificates))

	for i, a := range certificates {
		issuer[i] = -1

		for j, b := range certificates {
			if i != j && !isRoot(a) && issued(a, b) {
				issuer[i], issues[j] = j, true

				break
			}
		}
	}

	leaf := -1

	for i, is := range issues {
		switch {
		case is:
		case leaf >= 0:
			return nil, fail("the certificates are not of one chain")
		default:
			leaf = i
		}
	}

	var ordered []*x509.Certificate
	for i := leaf; i >= 0 && len(ordered) < len(certificates); i = issuer[i] {
		ordered = append(ordered, certificates[i])
	}

	if len(ordered) != len(certificates) {
		return nil, fail("the certificates are not of one chain")
	}

	return ordered, nil
}

// filterCertChain picks the leaf, the intermediates or the root of a chain; an
// empty text if there is none.
func filterCertChain(kind, text string) (string, error) {
	certificates, err := parseCertificates(text)
	if err != nil {
		return "", err
	}

	chain, err := order(certificates)
	if err != nil {
		return "", err
	}

	leaf, root, last := []*x509.Certificate{}, []*x509.Certificate{}, len(chain)-1
	intermediates := chain[1:]

	if !isRoot(chain[0]) {
		leaf = chain[:1]
	}

	if isRoot(chain[last]) {
		root = chain[last:]
		intermediates = chain[min(1, last):last]
	}

	switch kind {
	case "leaf":
		return encodeAll(leaf), nil
	case "intermediate":
		return encodeAll(intermediates), nil
	case "root":
		return encodeAll(root), nil
	default:
		return "", fail("it picks leaf, intermediate or root")
	}
}

// certSANs of the first certificate: names, addresses, mail addresses, URIs.
func certSANs(text string) ([]string, error) {
	certificates, err := parseCertificates(text)
	if err != nil {
		return nil, err
	}

	first := certificates[0]
	names := append([]string{}, first.DNSNames...)

	for _, ip := range first.IPAddresses {
		names = append(names, ip.String())
	}

	names = append(names, first.EmailAddresses...)

	for _, uri := range first.URIs {
		names = append(names, uri.String())
	}

	return names, nil
}

// rsaDecrypt decrypts raw bytes with a PEM private key.
func rsaDecrypt(scheme, digest, text, key string) (string, error) {
	switch scheme {
	case "None":
		return text, nil
	case "RSA-OAEP":
	default:
		return "", fail("the scheme is None or RSA-OAEP")
	}

	var h hash.Hash

	switch strings.ToUpper(digest) {
	case "SHA1":
		h = sha1.New() //nolint:gosec // some stores encrypt with it
	case "NONE", "SHA256":
		h = sha256.New()
	case "SHA512":
		h = sha512.New()
	default:
		return "", fail("the hash is None, SHA1, SHA256 or SHA512")
	}

	parsed, err := parseKey(key)
	if err != nil {
		return "", err
	}

	private, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return "", fail("the private key is not one of RSA")
	}

	decrypted, err := rsa.DecryptOAEP(h, nil, private, []byte(text), nil)
	if err != nil {
		return "", fail("the value cannot be decrypted with this key, scheme and hash")
	}

	return string(decrypted), nil
}
