package store

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"unicode"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// tokenAudience of tokens that are requested for a ServiceAccount.
const tokenAudience = "vault"

// credentials are the auth method of a config, with the means to resolve it.
type credentials struct {
	auth       v2alpha1.VaultAuth
	references provider.References
	// own reports whether the process's own identity may be used, by a config in
	// namespace; tokenFile contains its ServiceAccount's token.
	own       bool
	namespace string
	tokenFile string
	// google performs the requests to Google Cloud.
	google http.RoundTripper
}

// digest identifies a login: configs with the same server and the same credentials
// share one. It depends on the values of Secrets, not on their names only; of a token
// that is requested for each login, on its ServiceAccount.
func (c credentials) digest(ctx context.Context, spec *v2alpha1.VaultSpec, roots []byte) (string, error) {
	values := []any{spec.Server, spec.Namespace, spec.Headers, spec.TLS, spec.RequestsPerSecond, roots, c.references.Namespace(), c.own, c.auth}

	for _, ref := range c.secrets(spec) {
		value, err := c.references.SecretKey(ctx, *ref)
		if err != nil {
			return "", err
		}

		values = append(values, value)
	}

	text, err := json.Marshal(values)
	if err != nil {
		return "", provider.InvalidConfig("spec: %v", err)
	}

	sum := sha256.Sum256(text)

	return hex.EncodeToString(sum[:]), nil
}

// secrets returns the references to Secrets that the login uses.
func (c credentials) secrets(spec *v2alpha1.VaultSpec) []*metav1alpha1.SecretKeySelector {
	var refs []*metav1alpha1.SecretKeySelector

	if t := spec.TLS; t != nil {
		refs = append(refs, &t.CertSecretRef, &t.KeySecretRef)
	}

	switch a := c.auth; {
	case a.TokenSecretRef != nil:
		refs = append(refs, a.TokenSecretRef)
	case a.AppRole != nil:
		refs = append(refs, a.AppRole.RoleRef, &a.AppRole.SecretRef)
	case a.Kubernetes != nil:
		refs = append(refs, a.Kubernetes.SecretRef)
	case a.LDAP != nil:
		refs = append(refs, &a.LDAP.SecretRef)
	case a.UserPass != nil:
		refs = append(refs, &a.UserPass.SecretRef)
	case a.JWT != nil:
		refs = append(refs, a.JWT.SecretRef)
	case a.Cert != nil:
		refs = append(refs, &a.Cert.ClientCert, &a.Cert.SecretRef)
	case a.IAM != nil && a.IAM.SecretRef != nil:
		refs = append(refs, &a.IAM.SecretRef.AccessKeyIDSecretRef, &a.IAM.SecretRef.SecretAccessKeySecretRef, a.IAM.SecretRef.SessionTokenSecretRef)
	case a.GCP != nil && a.GCP.SecretRef != nil:
		refs = append(refs, &a.GCP.SecretRef.SecretAccessKeySecretRef)
	}

	set := refs[:0]

	for _, ref := range refs {
		if ref != nil {
			set = append(set, ref)
		}
	}

	return set
}

// clientCertificate returns the certificate of the client: that of the auth method or
// of spec.tls; nil if there is none.
func (c credentials) clientCertificate(ctx context.Context, spec *v2alpha1.VaultSpec) (*tls.Certificate, error) {
	var (
		field     string
		cert, key metav1alpha1.SecretKeySelector
	)

	switch {
	case c.auth.Cert != nil:
		field, cert, key = "spec.auth.cert", c.auth.Cert.ClientCert, c.auth.Cert.SecretRef
	case spec.TLS != nil:
		field, cert, key = "spec.tls", spec.TLS.CertSecretRef, spec.TLS.KeySecretRef
	default:
		return nil, nil //nolint:nilnil // there is no client certificate
	}

	certPEM, err := c.references.SecretKey(ctx, cert)
	if err != nil {
		return nil, err
	}

	keyPEM, err := c.references.SecretKey(ctx, key)
	if err != nil {
		return nil, err
	}

	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		// The library's error quotes neither of them.
		return nil, provider.InvalidConfig("%s: key %q of Secret %q and key %q of Secret %q are no certificate and its private key: %v", field, cert.Key, cert.Name, key.Key, key.Name, err)
	}

	return &pair, nil
}

// attempt is one login request.
type attempt struct {
	// what is done, for errors.
	what string
	// path below auth/ and the body.
	path string
	body map[string]any
}

// static reports whether the config names a token, which the store neither renews nor
// revokes.
func (c credentials) static() bool { return c.auth.TokenSecretRef != nil }

// perform logs in.
func (c credentials) perform(ctx context.Context, client *api.Client) (*api.SecretAuth, error) {
	if ref := c.auth.TokenSecretRef; ref != nil {
		token, err := c.text(ctx, "spec.auth.tokenSecretRef", *ref)
		if err != nil {
			return nil, err
		}

		return &api.SecretAuth{ClientToken: token}, nil
	}

	try, err := c.attempt(ctx)
	if err != nil {
		return nil, err
	}

	secret, err := client.Logical().WriteWithContext(ctx, "auth/"+try.path, try.body)
	if err != nil {
		return nil, loginError(try.what, err)
	}

	if secret == nil || secret.Auth == nil || secret.Auth.ClientToken == "" {
		return nil, provider.Unavailable("cannot %s: Vault answered no token", try.what)
	}

	return secret.Auth, nil
}

// attempt returns the request of the method that is set.
func (c credentials) attempt(ctx context.Context) (attempt, error) {
	switch a := c.auth; {
	case a.AppRole != nil:
		return c.appRole(ctx, a.AppRole)
	case a.Kubernetes != nil:
		return c.kubernetes(ctx, a.Kubernetes)
	case a.LDAP != nil:
		return c.password(ctx, "spec.auth.ldap", "ldap", a.LDAP)
	case a.UserPass != nil:
		return c.password(ctx, "spec.auth.userPass", "userpass", a.UserPass)
	case a.JWT != nil:
		return c.jwt(ctx, a.JWT)
	case a.Cert != nil:
		body := map[string]any{}
		if a.Cert.VaultRole != "" {
			body["name"] = a.Cert.VaultRole
		}

		return to(a.Cert.Path, "cert", "login", "", body)
	case a.IAM != nil:
		return c.iam(ctx, a.IAM)
	case a.GCP != nil:
		return c.gcp(ctx, a.GCP)
	default:
		return attempt{}, provider.InvalidConfig("spec.auth: set one of tokenSecretRef, appRole, kubernetes, ldap, jwt, cert, userPass, iam and gcp")
	}
}

// to returns a request to a mount, or to the method's default one.
func to(mount, usual, path, role string, body map[string]any) (attempt, error) {
	if mount = strings.Trim(mount, "/"); mount == "" {
		mount = usual
	}

	for part := range strings.SplitSeq(mount+"/"+path, "/") {
		if part == "" || part == "." || part == ".." {
			return attempt{}, provider.InvalidConfig("spec.auth: auth/%s/%s is no path of an auth method", mount, path)
		}
	}

	what := "log in at auth/" + mount
	if role != "" {
		what = "log in to role \"" + role + "\" at auth/" + mount
	}

	return attempt{what: what, path: mount + "/" + path, body: body}, nil
}

func (c credentials) appRole(ctx context.Context, method *v2alpha1.VaultAppRoleAuth) (attempt, error) {
	role := method.RoleID

	if method.RoleRef != nil {
		var err error
		if role, err = c.text(ctx, "spec.auth.appRole.roleRef", *method.RoleRef); err != nil {
			return attempt{}, err
		}
	}

	if role == "" {
		return attempt{}, provider.InvalidConfig("spec.auth.appRole: set roleId or roleRef")
	}

	id, err := c.text(ctx, "spec.auth.appRole.secretRef", method.SecretRef)
	if err != nil {
		return attempt{}, err
	}

	return to(method.Path, "approle", "login", "", map[string]any{"role_id": role, "secret_id": id})
}

func (c credentials) kubernetes(ctx context.Context, method *v2alpha1.VaultKubernetesAuth) (attempt, error) {
	var (
		token string
		err   error
	)

	switch {
	case method.ServiceAccountRef != nil:
		token, err = c.references.ServiceAccountToken(ctx, *method.ServiceAccountRef, tokenAudience)
	case method.SecretRef != nil:
		token, err = c.text(ctx, "spec.auth.kubernetes.secretRef", *method.SecretRef)
	default:
		token, err = c.ownToken()
	}

	if err != nil {
		return attempt{}, err
	}

	return to(method.MountPath, "kubernetes", "login", method.Role, map[string]any{"role": method.Role, "jwt": token})
}

// ownToken returns the token of the provider's own Pod. The author of the config
// chooses spec.server, which gets the token with all the provider's rights: therefore
// a flag of the provider has to allow it.
func (c credentials) ownToken() (string, error) {
	if !c.own {
		return "", provider.OwnIdentityDenied(c.namespace)
	}

	token, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return "", provider.InvalidConfig("spec.auth.kubernetes: cannot read the token of the provider's own ServiceAccount (--service-account-token-file): %v", err)
	}

	return strings.TrimSpace(string(token)), nil
}

func (c credentials) password(ctx context.Context, field, usual string, method *v2alpha1.VaultPasswordAuth) (attempt, error) {
	// A password may begin or end with a space, but not with a line break.
	password, err := c.references.SecretKey(ctx, method.SecretRef)
	if err != nil {
		return attempt{}, err
	}

	if strings.Contains(method.Username, "/") {
		return attempt{}, provider.InvalidConfig("%s.username: a name with a / would be another path", field)
	}

	return to(method.Path, usual, "login/"+method.Username, "", map[string]any{"password": strings.TrimRight(string(password), "\r\n")})
}

func (c credentials) jwt(ctx context.Context, method *v2alpha1.VaultJWTAuth) (attempt, error) {
	var (
		token string
		err   error
	)

	switch {
	case method.KubernetesServiceAccountToken != nil:
		token, err = c.references.ServiceAccountToken(ctx, method.KubernetesServiceAccountToken.ServiceAccountRef, tokenAudience)
	case method.SecretRef != nil:
		token, err = c.text(ctx, "spec.auth.jwt.secretRef", *method.SecretRef)
	default:
		err = provider.InvalidConfig("spec.auth.jwt: set secretRef or kubernetesServiceAccountToken")
	}

	if err != nil {
		return attempt{}, err
	}

	body := map[string]any{"jwt": token}
	if method.Role != "" {
		body["role"] = method.Role
	}

	return to(method.Path, "jwt", "login", method.Role, body)
}

// text returns a credential that is one line of text.
func (c credentials) text(ctx context.Context, field string, ref metav1alpha1.SecretKeySelector) (string, error) {
	value, err := c.references.SecretKey(ctx, ref)
	if err != nil {
		return "", err
	}

	trimmed := strings.TrimSpace(string(value))

	switch {
	case trimmed == "":
		return "", provider.InvalidConfig("%s: key %q of Secret %q is empty", field, ref.Key, ref.Name)
	case strings.ContainsFunc(trimmed, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", provider.InvalidConfig("%s: key %q of Secret %q is no token: it holds what cannot be printed", field, ref.Key, ref.Name)
	}

	return trimmed, nil
}

// loginError returns the error of a refused login, with which every call fails.
func loginError(what string, err error) error {
	typed := provider.AsError(requestError(what, err))
	if typed.Code == accessDenied || typed.Code == codes.InvalidArgument {
		return provider.Unauthenticated("%s", typed.Message)
	}

	typed.StoreScope = true

	return typed
}
