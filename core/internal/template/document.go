package template

import (
	"crypto/x509"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"sigs.k8s.io/yaml"
)

// toYAML has no error, as in Helm: what is not YAML is empty.
func toYAML(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return ""
	}

	return strings.TrimSuffix(string(text), "\n")
}

// fromYAML has no error, as in Helm: there is a text under the key Error
// instead. The library's would quote the value.
func fromYAML(text string) map[string]any {
	value := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return map[string]any{"Error": "the value is not a YAML mapping"}
	}

	return value
}

func parseJWK(text string) (*jose.JSONWebKey, error) {
	key := &jose.JSONWebKey{}
	if err := key.UnmarshalJSON([]byte(text)); err != nil {
		return nil, fail("the value is not a JSON Web Key of the type RSA, EC or OKP (Ed25519)")
	}

	return key, nil
}

// jwkPublicKeyPEM is the public key of a JWK, PKIX in PEM; of a private one
// too.
func jwkPublicKeyPEM(text string) (string, error) {
	key, err := parseJWK(text)
	if err != nil {
		return "", err
	}

	der, err := x509.MarshalPKIXPublicKey(key.Public().Key)
	if err != nil {
		return "", fail("the JSON Web Key has no public key")
	}

	return encode(typePublicKey, der), nil
}

// jwkPrivateKeyPEM is the private key of a JWK, PKCS#8 in PEM.
func jwkPrivateKeyPEM(text string) (string, error) {
	key, err := parseJWK(text)
	if err != nil {
		return "", err
	}

	if key.IsPublic() {
		return "", fail("the JSON Web Key has no private key")
	}

	der, err := x509.MarshalPKCS8PrivateKey(key.Key)
	if err != nil {
		return "", fail("the JSON Web Key has no private key")
	}

	return encode(typePrivateKey, der), nil
}
