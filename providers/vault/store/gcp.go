package store

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// assertionLife is how long a token lives that proves a service account; Vault
// accepts at most 15 minutes.
const assertionLife = 10 * time.Minute

// gcp logs in as Vault's Google Cloud method has it: with a token for Vault
// alone, signed by the service account's key, or by the instance's own service
// account.
func (c credentials) gcp(ctx context.Context, method *v2alpha1.VaultGCPAuth) (attempt, error) {
	var (
		token string
		err   error
	)

	switch {
	case method.SecretRef != nil:
		token, err = c.gcpAssertion(ctx, method)
	case c.own:
		// The audience is one that only Vault with this role accepts.
		token, err = metadata.GetWithContext(ctx, "instance/service-accounts/default/identity?format=full&audience="+url.QueryEscape("http://vault/"+method.Role))
		if err != nil {
			err = provider.Unavailable("cannot log in with spec.auth.gcp: the instance that the provider runs on gives no identity")
		}
	default:
		err = provider.OwnIdentityDenied(c.namespace)
	}

	if err != nil {
		return attempt{}, err
	}

	return to(method.Path, "gcp", "login", method.Role, map[string]any{"role": method.Role, "jwt": token})
}

// gcpAssertion signs a token with the key of a service account.
func (c credentials) gcpAssertion(ctx context.Context, method *v2alpha1.VaultGCPAuth) (string, error) {
	const field = "spec.auth.gcp.secretRef.secretAccessKeySecretRef"

	ref := method.SecretRef.SecretAccessKeySecretRef

	text, err := c.references.SecretKey(ctx, ref)
	if err != nil {
		return "", err
	}

	var file struct {
		ClientEmail  string `json:"client_email"`
		PrivateKeyID string `json:"private_key_id"`
		PrivateKey   string `json:"private_key"`
	}

	// What is wrong with it is not quoted: the file is a credential.
	if err := json.Unmarshal(text, &file); err != nil || file.ClientEmail == "" || file.PrivateKey == "" {
		return "", provider.InvalidConfig("%s: key %q of Secret %q is not the JSON key of a service account", field, ref.Key, ref.Name)
	}

	block, _ := pem.Decode([]byte(file.PrivateKey))
	if block == nil {
		return "", provider.InvalidConfig("%s: private_key in key %q of Secret %q is no PEM", field, ref.Key, ref.Name)
	}

	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", provider.InvalidConfig("%s: private_key in key %q of Secret %q is no PKCS #8 key", field, ref.Key, ref.Name)
	}

	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", file.PrivateKeyID)

	sign, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, options)
	if err != nil {
		return "", provider.InvalidConfig("%s: private_key in key %q of Secret %q is no RSA key", field, ref.Key, ref.Name)
	}

	token, err := jwt.Signed(sign).Claims(jwt.Claims{
		Subject: file.ClientEmail, Audience: jwt.Audience{"vault/" + method.Role}, Expiry: jwt.NewNumericDate(time.Now().Add(assertionLife)),
	}).Serialize()
	if err != nil {
		return "", provider.InvalidConfig("%s: cannot sign with key %q of Secret %q", field, ref.Key, ref.Name)
	}

	return token, nil
}
