package template

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"strings"

	"software.sslmate.com/src/go-pkcs12"
)

// maxIterations that a password is hashed for, in an archive that is read.
// Archives have some thousands.
const maxIterations = 1_000_000

func pkcs12Key(archive string) (string, error) { return pkcs12KeyPass("", archive) }

// pkcs12KeyPass is the private key of an archive, PKCS#8 in PEM.
func pkcs12KeyPass(password, archive string) (string, error) {
	if err := checkArchive(archive); err != nil {
		return "", err
	}

	key, _, _, err := pkcs12.DecodeChain([]byte(archive), password)
	if err != nil {
		return "", archiveError(err)
	}

	return encodeKey(key)
}

func encodeKey(key any) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fail("the private key has a type that PKCS#8 does not have")
	}

	return encode(typePrivateKey, der), nil
}

func pkcs12Cert(archive string) (string, error) { return pkcs12CertPass("", archive) }

// pkcs12CertPass is all certificates of an archive in PEM, from the leaf to the
// root if they are of one chain, else as they are.
func pkcs12CertPass(password, archive string) (string, error) {
	if err := checkArchive(archive); err != nil {
		return "", err
	}

	_, leaf, others, err := pkcs12.DecodeChain([]byte(archive), password)
	certificates := append([]*x509.Certificate{leaf}, others...)

	if err != nil {
		// It may have no key, as trust stores do.
		var noStore error
		if certificates, noStore = pkcs12.DecodeTrustStore([]byte(archive), password); noStore != nil {
			return "", archiveError(err)
		}
	}

	if ordered, err := order(certificates); err == nil {
		certificates = ordered
	}

	return encodeAll(certificates), nil
}

func pemToPKCS12(certificate, key string) (string, error) {
	return pemToPKCS12Pass(certificate, key, "")
}

// pemToPKCS12Pass archives the first certificate and the key.
func pemToPKCS12Pass(certificate, key, password string) (string, error) {
	certificates, err := parseCertificates(certificate)
	if err != nil {
		return "", err
	}

	return archive(certificates[:1], key, password)
}

func fullPEMToPKCS12(certificates, key string) (string, error) {
	return fullPEMToPKCS12Pass(certificates, key, "")
}

// fullPEMToPKCS12Pass archives all certificates, the first as that of the key.
func fullPEMToPKCS12Pass(text, key, password string) (string, error) {
	certificates, err := parseCertificates(text)
	if err != nil {
		return "", err
	}

	return archive(certificates, key, password)
}

func archive(certificates []*x509.Certificate, key, password string) (string, error) {
	private, err := parseKey(key)
	if err != nil {
		return "", err
	}

	der, err := pkcs12.Modern2023.Encode(private, certificates[0], certificates[1:], password)
	if err != nil {
		return "", fail("the archive cannot be made with this key and password")
	}

	return base64.StdEncoding.EncodeToString(der), nil
}

func pemTruststoreToPKCS12(certificates string) (string, error) {
	return pemTruststoreToPKCS12Pass(certificates, "")
}

// pemTruststoreToPKCS12Pass archives certificates to be trusted.
func pemTruststoreToPKCS12Pass(text, password string) (string, error) {
	certificates, err := parseCertificates(text)
	if err != nil {
		return "", err
	}

	der, err := pkcs12.Modern2023.EncodeTrustStore(certificates, password)
	if err != nil {
		return "", fail("the archive cannot be made with this password")
	}

	return base64.StdEncoding.EncodeToString(der), nil
}

func archiveError(err error) error {
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword):
		return fail("the password is not that of the PKCS#12 archive")
	default:
		return fail("the value is not a PKCS#12 archive that can be read: one with a private key and its certificates")
	}
}

// checkArchive refuses what is no archive, and one that would be hashed for
// minutes.
func checkArchive(archive string) error {
	if strings.HasPrefix(archive, "MI") {
		if _, err := base64.StdEncoding.DecodeString(strings.TrimSpace(archive)); err == nil {
			return fail("the value is a PKCS#12 archive in base64: decode it with b64dec, or by its decodingStrategy")
		}
	}

	if slow([]byte(archive), 0) {
		return fail("the PKCS#12 archive asks for more than %d iterations", maxIterations)
	}

	return nil
}

// slow looks for the parameters of a password's hash in DER: everywhere in
// PKCS#12 they are a salt and the number of iterations after it.
func slow(der []byte, level int) bool {
	// Archives have about ten levels.
	const maxLevel = 32

	if level > maxLevel {
		return true
	}

	salt := false

	for len(der) > 0 {
		var (
			value asn1.RawValue
			err   error
		)
		if der, err = asn1.Unmarshal(der, &value); err != nil {
			return false
		}

		if salt && value.Class == asn1.ClassUniversal && value.Tag == asn1.TagInteger {
			var n int64
			if _, err := asn1.Unmarshal(value.FullBytes, &n); err != nil || n > maxIterations {
				return true
			}
		}

		octets := value.Class == asn1.ClassUniversal && value.Tag == asn1.TagOctetString
		salt = octets

		if (octets || value.IsCompound) && slow(value.Bytes, level+1) {
			return true
		}
	}

	return false
}
