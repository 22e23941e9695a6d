package template

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"software.sslmate.com/src/go-pkcs12"
)

// keysOfAllTypes have nothing to do with the certificates: archives do not mind.
func keysOfAllTypes() map[string]crypto.Signer {
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)

	return map[string]crypto.Signer{"RSA": made().rsaKey, "ECDSA": made().leafKey, "Ed25519": edKey}
}

func TestPKCS12IsReadHoweverItIsEncrypted(t *testing.T) {
	t.Parallel()

	p := made()
	chain := encodeAll([]*x509.Certificate{p.leaf, p.intermediate, p.root})

	for encryption, encoder := range map[string]*pkcs12.Encoder{
		"RC2": pkcs12.LegacyRC2, "3DES": pkcs12.LegacyDES, "AES": pkcs12.Modern2023, "PBMAC1": pkcs12.Modern2026, "none": pkcs12.Passwordless,
	} {
		for kind, key := range keysOfAllTypes() {
			password := "pass ü"
			if encryption == "none" {
				password = ""
			}

			// The library puts the leaf first, and the others as they come.
			der := must(encoder.Encode(key, p.leaf, []*x509.Certificate{p.root, p.intermediate}, password))

			gotKey, err := pkcs12KeyPass(password, string(der))
			if want := must(encodeKey(key)); err != nil || gotKey != want {
				t.Errorf("%s, %s: key %q, %v", encryption, kind, gotKey, err)
			}

			gotChain, err := pkcs12CertPass(password, string(der))
			if err != nil || gotChain != chain {
				t.Errorf("%s, %s: certificates %q, %v; want leaf, intermediate, root", encryption, kind, gotChain, err)
			}
		}
	}
}

func TestPKCS12OfCertificatesThatAreNoChain(t *testing.T) {
	t.Parallel()

	p := made()
	other := issue(9, "other", true, ecKey(), nil, nil)
	der := must(pkcs12.Modern2023.Encode(p.leafKey, p.leaf, []*x509.Certificate{other}, ""))

	got, err := pkcs12Cert(string(der))
	if want := encodeAll([]*x509.Certificate{p.leaf, other}); err != nil || got != want {
		t.Errorf("got %q, %v; want them as they are", got, err)
	}
}

func TestPKCS12IsWrittenForOthers(t *testing.T) {
	t.Parallel()

	p := made()

	for kind, key := range keysOfAllTypes() {
		text, err := fullPEMToPKCS12Pass(data()["chain"], must(encodeKey(key)), "x")
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}

		gotKey, leaf, others, err := pkcs12.DecodeChain(must(base64.StdEncoding.DecodeString(text)), "x")
		if err != nil || !leaf.Equal(p.leaf) || len(others) != 2 || !others[0].Equal(p.intermediate) || !others[1].Equal(p.root) {
			t.Errorf("%s: the archive holds %v, %v, %v", kind, leaf, others, err)
		}

		if want := must(encodeKey(key)); must(encodeKey(gotKey)) != want {
			t.Errorf("%s: the archive has another key", kind)
		}
	}

	// The short function leaves the chain out.
	_, leaf, others, err := pkcs12.DecodeChain(must(base64.StdEncoding.DecodeString(must(pemToPKCS12(data()["chain"], data()["leafKey"])))), "")
	if err != nil || !leaf.Equal(p.leaf) || len(others) != 0 {
		t.Errorf("the archive holds %v, %v, %v", leaf, others, err)
	}
}

func TestTrustStore(t *testing.T) {
	t.Parallel()

	for _, password := range []string{"", "changeit"} {
		text := must(pemTruststoreToPKCS12Pass(data()["root"]+data()["intermediate"], password))

		certificates, err := pkcs12.DecodeTrustStore(must(base64.StdEncoding.DecodeString(text)), password)
		if err != nil || len(certificates) != 2 || !certificates[0].Equal(made().root) {
			t.Errorf("the trust store holds %v, %v", certificates, err)
		}
	}
}

// OpenSSL is what most archives come from. Without it the other tests have to
// do.
func TestPKCS12OfOpenSSL(t *testing.T) {
	t.Parallel()

	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("there is no openssl")
	}

	dir := t.TempDir()
	chain, key, out := filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "out.p12")

	for path, text := range map[string]string{chain: data()["chain"], key: data()["leafKey"]} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	command := exec.CommandContext(t.Context(), openssl, "pkcs12", "-export", "-in", chain, "-inkey", key, "-out", out, "-passout", "pass:x", "-name", "mine")
	if text, err := command.CombinedOutput(); err != nil {
		t.Skipf("openssl cannot: %v: %s", err, text)
	}

	archive := string(must(os.ReadFile(out)))

	if got, err := pkcs12KeyPass("x", archive); err != nil || got != data()["leafKey"] {
		t.Errorf("key %q, %v", got, err)
	}

	if got, err := pkcs12CertPass("x", archive); err != nil || got != data()["chain"] {
		t.Errorf("certificates %q, %v", got, err)
	}
}

func TestPKCS12WithTooManyIterations(t *testing.T) {
	t.Parallel()

	p := made()

	// The MAC's iterations end an archive: with other ones it would be hashed
	// for an hour before anybody saw that it does not fit.
	var archive struct {
		Version int
		Safe    asn1.RawValue
		MAC     struct {
			Digest     asn1.RawValue
			Salt       []byte
			Iterations int
		}
	}

	der := must(pkcs12.Modern2023.Encode(p.leafKey, p.leaf, nil, ""))
	if _, err := asn1.Unmarshal(der, &archive); err != nil {
		t.Fatal(err)
	}

	archive.MAC.Iterations = 1 << 40

	_, err := pkcs12Key(string(must(asn1.Marshal(archive))))
	if err == nil || !strings.Contains(err.Error(), "more than 1000000 iterations") {
		t.Errorf("err = %v", err)
	}

	// The same for what the key and the certificates are encrypted with.
	strong := must(pkcs12.Modern2023.WithIterations(5000).Encode(p.leafKey, p.leaf, nil, ""))
	five, much := must(asn1.Marshal(5000)), must(asn1.Marshal(29_000))

	if !slow([]byte(strings.ReplaceAll(string(strong), string(five), string(much))), 31) {
		t.Error("what is nested deeper than archives are is let through")
	}

	if slow(strong, 0) {
		t.Error("5000 iterations are too many")
	}
}

func TestFilterPEM(t *testing.T) {
	t.Parallel()

	d := data()

	for _, c := range []struct{ why, kind, in, want string }{
		{"blocks of the type stay in their order", "CERTIFICATE", d["leafKey"] + d["leaf"] + d["root"], d["leaf"] + d["root"]},
		{"the type's case does not matter", "private key", d["leafKey"] + d["leaf"], d["leafKey"]},
		{"what stands before, between and after is dropped", "CERTIFICATE", "subject=x\n" + d["leaf"] + "\n# next\n" + d["root"] + "\n\n", d["leaf"] + d["root"]},
		{"none of the type is nothing", "CERTIFICATE", d["leafKey"] + "\n", ""},
		{"nothing is nothing", "CERTIFICATE", "", ""},
	} {
		if got, err := filterPEM(c.kind, c.in); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v", c.why, got, err)
		}
	}
}

func TestFilterCertChain(t *testing.T) {
	t.Parallel()

	d := data()
	other := encodeAll([]*x509.Certificate{issue(9, "other", true, ecKey(), nil, nil)})

	for _, c := range []struct{ why, kind, in, want string }{
		{"the order does not matter", "leaf", d["root"] + d["leaf"] + d["intermediate"], d["leaf"]},
		{"all between", "intermediate", d["root"] + d["intermediate"] + d["leaf"], d["intermediate"]},
		{"a chain without a root has none", "root", d["leaf"] + d["intermediate"], ""},
		{"a chain without a root has its intermediates", "intermediate", d["leaf"] + d["intermediate"], d["intermediate"]},
		{"a chain without intermediates has none", "intermediate", d["intermediate"] + d["root"], ""},
		{"a leaf alone", "leaf", d["leaf"], d["leaf"]},
		{"a root alone is no leaf", "leaf", d["root"], ""},
		{"a root alone is the root", "root", d["root"], d["root"]},
		{"a root alone is not between", "intermediate", d["root"], ""},
		{"a key in between is skipped", "root", d["leaf"] + d["leafKey"] + d["intermediate"] + d["root"], d["root"]},
	} {
		if got, err := filterCertChain(c.kind, c.in); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.why, got, err, c.want)
		}
	}

	for why, in := range map[string]string{
		"certificates of two chains": d["leaf"] + other, "two of one certificate": d["leaf"] + d["leaf"],
		"a leaf, a root, and nothing between": d["leaf"] + d["root"], "too many": strings.Repeat(d["root"], maxCertificates+1),
	} {
		if got, err := filterCertChain("leaf", in); err == nil {
			t.Errorf("%s: got %q", why, got)
		}
	}
}

func TestPrivateKeysOfAllForms(t *testing.T) {
	t.Parallel()

	p := made()
	ec := must(x509.MarshalECPrivateKey(p.leafKey))

	for why, text := range map[string]string{
		"PKCS#1":                       encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(p.rsaKey)),
		"SEC 1":                        encode("EC PRIVATE KEY", ec),
		"SEC 1, after its parameters":  encode("EC PARAMETERS", []byte{6, 0}) + encode("EC PRIVATE KEY", ec),
		"PKCS#8":                       data()["rsaKey"],
		"PKCS#8, after a certificate":  data()["leaf"] + data()["leafKey"],
		"PKCS#1 under a PKCS#8 header": encode("PRIVATE KEY", x509.MarshalPKCS1PrivateKey(p.rsaKey)),
	} {
		if _, err := parseKey(text); err != nil {
			t.Errorf("%s: %v", why, err)
		}
	}

	for why, text := range map[string]string{
		"PKCS#8": encode("ENCRYPTED PRIVATE KEY", []byte("x")),
		"PEM": string(pem.EncodeToMemory(&pem.Block{
			Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("x"),
		})),
	} {
		if _, err := parseKey(text); err == nil || err.Error() != "the private key is encrypted" {
			t.Errorf("encrypted in %s: err = %v", why, err)
		}
	}
}

func TestJWK(t *testing.T) {
	t.Parallel()

	for kind, key := range keysOfAllTypes() {
		text := string(must(json.Marshal(jose.JSONWebKey{Key: key, KeyID: "id", Use: "sig"})))
		public := string(must(json.Marshal(jose.JSONWebKey{Key: key.Public()})))
		wantPublic := encode(typePublicKey, must(x509.MarshalPKIXPublicKey(key.Public())))

		got, err := jwkPrivateKeyPEM(text)
		if diff := cmp.Diff(must(encodeKey(key)), got); err != nil || diff != "" {
			t.Errorf("%s: %v, private key (-want +got):\n%s", kind, err, diff)
		}

		for _, in := range []string{text, public} {
			got, err := jwkPublicKeyPEM(in)
			if diff := cmp.Diff(wantPublic, got); err != nil || diff != "" {
				t.Errorf("%s: %v, public key (-want +got):\n%s", kind, err, diff)
			}
		}
	}
}

// The key of RFC 7517, A.1, which others have made.
func TestJWKOfTheRFC(t *testing.T) {
	t.Parallel()

	got, err := jwkPublicKeyPEM(`{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
		"y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","use":"enc","kid":"1"}`)
	if err != nil {
		t.Fatal(err)
	}

	block, _ := pem.Decode([]byte(got))
	if block == nil || block.Type != typePublicKey {
		t.Fatalf("got %q", got)
	}

	if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		t.Error(err)
	}
}

func TestRSADecryptTakesAnyFormOfKey(t *testing.T) {
	t.Parallel()

	key := encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(made().rsaKey))
	if got, err := rsaDecrypt("RSA-OAEP", "sha256", data()["oaep256"], key); err != nil || got != "decrypted" {
		t.Errorf("got %q, %v", got, err)
	}

	if _, err := rsaDecrypt("RSA-OAEP", "SHA1", data()["oaep256"], key); err == nil {
		t.Error("another hash decrypts")
	}
}
