package store

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// assertionLife is the lifetime of a token that proves a service account; Vault
// accepts 15 minutes at most.
const assertionLife = 10 * time.Minute

// gcp returns the login of Vault's Google Cloud method: a token for Vault only, signed
// with the service account's key, by Google Cloud for an identity that may act as the
// service account, or by the metadata server of the instance.
func (c credentials) gcp(ctx context.Context, method *v2alpha1.VaultGCPAuth) (attempt, error) {
	var (
		token string
		err   error
	)

	switch {
	case method.SecretRef != nil:
		token, err = c.gcpAssertion(ctx, method)
	case method.WorkloadIdentity != nil:
		token, err = c.gcpExchange(ctx, method)
	case c.own:
		// Only Vault accepts this audience, for this role.
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

	// The error is not quoted: the file is a credential.
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

	token, err := jwt.Signed(sign).Claims(assertion(file.ClientEmail, method.Role)).Serialize()
	if err != nil {
		return "", provider.InvalidConfig("%s: cannot sign with key %q of Secret %q", field, ref.Key, ref.Name)
	}

	return token, nil
}

// assertion is the claims of a token that proves a service account to a role of Vault.
func assertion(email, role string) jwt.Claims {
	return jwt.Claims{Subject: email, Audience: jwt.Audience{"vault/" + role}, Expiry: jwt.NewNumericDate(time.Now().Add(assertionLife))}
}

// gcpExchange returns a token that Google Cloud signs for an identity that may act as
// the service account: a ServiceAccount's token is exchanged for an access token of
// the workload identity pool (RFC 8693), and that for one of the service account.
func (c credentials) gcpExchange(ctx context.Context, method *v2alpha1.VaultGCPAuth) (string, error) {
	identity := method.WorkloadIdentity
	audience, tokenAudience := audiences(identity)
	cloud := &googleCloud{transport: c.google}
	client := &http.Client{
		Transport: cloud, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	account := "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + url.PathEscape(identity.ServiceAccountEmail)

	source, err := externalaccount.NewTokenSource(context.WithValue(ctx, oauth2.HTTPClient, client), externalaccount.Config{
		Audience:                       audience,
		SubjectTokenType:               "urn:ietf:params:oauth:token-type:jwt",
		SubjectTokenSupplier:           subject{credentials: c, account: identity.ServiceAccountRef, audience: tokenAudience, cloud: cloud},
		ServiceAccountImpersonationURL: account + ":generateAccessToken",
		ServiceAccountImpersonationLifetimeSeconds: int(assertionLife / time.Second),
		Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"},
	})
	if err != nil {
		return "", provider.InvalidConfig("spec.auth.gcp.workloadIdentity: %v", err)
	}

	access, err := source.Token()
	if err != nil {
		return "", cloud.why(ctx)
	}

	claims, err := json.Marshal(assertion(identity.ServiceAccountEmail, method.Role))
	if err != nil {
		return "", provider.InvalidConfig("spec.auth.gcp: cannot encode what is to be signed")
	}

	body, err := json.Marshal(map[string]string{"payload": string(claims)})
	if err != nil {
		return "", provider.InvalidConfig("spec.auth.gcp: cannot encode what is to be signed")
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, account+":signJwt", bytes.NewReader(body))
	if err != nil {
		return "", provider.InvalidConfig("spec.auth.gcp.workloadIdentity.serviceAccountEmail: it fits no URL")
	}

	request.Header.Set("Content-Type", "application/json")
	access.SetAuthHeader(request)

	response, err := client.Do(request)
	if err != nil {
		return "", cloud.why(ctx)
	}
	defer response.Body.Close()

	var signed struct {
		JWT string `json:"signedJwt"`
	}

	if err := json.NewDecoder(io.LimitReader(response.Body, maxSigned)).Decode(&signed); err != nil || signed.JWT == "" {
		return "", provider.Unavailable("cannot log in with spec.auth.gcp.workloadIdentity: Google Cloud signed no token")
	}

	return signed.JWT, nil
}

// maxSigned bounds a response with a signed token, in bytes.
const maxSigned = 64 << 10

// audiences returns those of a workload identity: the one for the security token
// service, and the one of the ServiceAccount's token.
func audiences(identity *v2alpha1.VaultGCPWorkloadIdentity) (exchange, token string) {
	cluster := identity.Cluster
	if cluster == nil {
		return identity.Audience, "https:" + identity.Audience
	}

	pool := cluster.ProjectID + ".svc.id.goog"

	return fmt.Sprintf("identitynamespace:%s:https://container.googleapis.com/v1/projects/%s/locations/%s/clusters/%s",
		pool, cluster.ProjectID, cluster.Location, cluster.Name), pool
}

// subject returns a ServiceAccount's token to the library.
type subject struct {
	credentials credentials
	account     metav1alpha1.ServiceAccountSelector
	audience    string
	cloud       *googleCloud
}

// SubjectToken requests a token.
func (s subject) SubjectToken(ctx context.Context, _ externalaccount.SupplierOptions) (string, error) {
	token, err := s.credentials.references.ServiceAccountToken(ctx, s.account, s.audience)
	s.cloud.failure = err

	return token, err
}

// googleCloud performs the requests of one login and records why it failed: the
// library's errors are texts that quote responses.
type googleCloud struct {
	transport http.RoundTripper
	// failure is the error of a refused request; unanswered is why there was no
	// response.
	failure, unanswered error
}

// RoundTrip performs a request.
func (g *googleCloud) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := g.transport.RoundTrip(request)
	if err != nil {
		g.unanswered = err

		return nil, err
	}

	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}

	_ = response.Body.Close()

	answers := fmt.Sprintf("cannot log in with spec.auth.gcp.workloadIdentity: %s answers %d", request.URL.Host, response.StatusCode)

	switch {
	case response.StatusCode == http.StatusTooManyRequests:
		g.failure = provider.Throttled(0, "%s", answers)
	case response.StatusCode >= http.StatusInternalServerError:
		g.failure = provider.Unavailable("%s", answers)
	case request.URL.Host == "sts.googleapis.com":
		g.failure = provider.Unauthenticated("%s: the pool does not accept the ServiceAccount's token", answers)
	default:
		g.failure = provider.Unauthenticated("%s: does the service account let the ServiceAccount act as it, and itself sign?", answers)
	}

	return nil, g.failure
}

// why returns the reason of a failed login.
func (g *googleCloud) why(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case g.failure != nil:
		return g.failure
	case g.unanswered != nil:
		reason, _ := backend.Reason(g.unanswered, backend.Fields{Late: fmt.Sprintf("it does not answer within %s", requestTimeout)})

		return provider.Unavailable("cannot log in with spec.auth.gcp.workloadIdentity: Google Cloud: %s", reason)
	default:
		return provider.Unavailable("cannot log in with spec.auth.gcp.workloadIdentity: Google Cloud's answer holds no token")
	}
}
