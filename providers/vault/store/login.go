package store

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
	// podToken is the provider Pod's own ServiceAccount token.
	podToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	// tokenAudience of tokens that are requested for a ServiceAccount.
	tokenAudience = "vault"
	// lookupPause is the least time between two questions whether a token
	// still holds: each refused read would ask one.
	lookupPause = 10 * time.Second
)

// login is a store's login to Vault.
type login struct {
	client     *api.Client
	auth       v2alpha1.VaultAuth
	references provider.References
	now        func() time.Time

	mu        sync.Mutex
	current   string
	renewable bool
	renewAt   time.Time
	expires   time.Time

	lookedUp  time.Time
	lastValid bool
}

func newLogin(client *api.Client, spec *v2alpha1.VaultSpec, references provider.References) *login {
	return &login{client: client, auth: spec.Auth, references: references, now: time.Now}
}

// token gives a token that is good for now: the present one, renewed when two
// thirds of its life are over, or one of a new login.
func (l *login) token(ctx context.Context) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	now := l.now()

	if l.current != "" && (l.renewAt.IsZero() || now.Before(l.renewAt)) {
		return l.current, nil
	}

	if l.current != "" && l.renewable && now.Before(l.expires) {
		if secret, err := l.as(l.current).Auth().Token().RenewSelfWithContext(ctx, 0); err == nil && l.use(secret) {
			return l.current, nil
		}
	}

	secret, err := l.perform(ctx)
	if err != nil {
		// The old token may outlive a Vault that is away for a moment.
		if l.current != "" && now.Before(l.expires) {
			l.renewAt = now.Add(lookupPause)

			return l.current, nil
		}

		return "", err
	}

	if !l.use(secret) {
		return "", provider.Unavailable("cannot log in: Vault answered no token")
	}

	return l.current, nil
}

// use takes over what a login or a renewal answered. A token's whole life is
// known at its login only, so that a renewal which shortens it means that the
// end of it is near.
func (l *login) use(secret *api.Secret) bool {
	if secret == nil || secret.Auth == nil || secret.Auth.ClientToken == "" {
		return false
	}

	l.current, l.renewable = secret.Auth.ClientToken, secret.Auth.Renewable
	l.renewAt, l.expires = time.Time{}, time.Time{}

	if life := time.Duration(secret.Auth.LeaseDuration) * time.Second; life > 0 {
		now := l.now()
		l.renewAt, l.expires = now.Add(life*2/3), now.Add(life)
	}

	return true
}

// perform logs in.
func (l *login) perform(ctx context.Context) (*api.Secret, error) {
	if ref := l.auth.TokenSecretRef; ref != nil {
		token, err := l.references.SecretKey(ctx, *ref)
		if err != nil {
			return nil, err
		}

		trimmed := strings.TrimSpace(string(token))
		if trimmed == "" {
			return nil, provider.InvalidConfig("spec.auth.tokenSecretRef: key %q of Secret %q is empty", ref.Key, ref.Name)
		}

		return &api.Secret{Auth: &api.SecretAuth{ClientToken: trimmed}}, nil
	}

	if l.auth.Kubernetes == nil {
		return nil, provider.InvalidConfig("spec.auth: set tokenSecretRef or kubernetes")
	}

	return l.kubernetes(ctx, l.auth.Kubernetes)
}

func (l *login) kubernetes(ctx context.Context, method *v2alpha1.VaultKubernetesAuth) (*api.Secret, error) {
	token, err := l.serviceAccountToken(ctx, method)
	if err != nil {
		return nil, err
	}

	mount := strings.Trim(method.MountPath, "/")
	if mount == "" {
		mount = "kubernetes"
	}

	client := l.as("")
	if l.auth.Namespace != "" {
		client.SetNamespace(l.auth.Namespace)
	}

	secret, err := client.Logical().WriteWithContext(ctx, "auth/"+mount+"/login", map[string]any{"role": method.Role, "jwt": token})
	if err != nil {
		return nil, loginError("log in to role \""+method.Role+"\" at auth/"+mount, err)
	}

	return secret, nil
}

func (l *login) serviceAccountToken(ctx context.Context, method *v2alpha1.VaultKubernetesAuth) (string, error) {
	switch {
	case method.ServiceAccountRef != nil:
		return l.references.ServiceAccountToken(ctx, *method.ServiceAccountRef, tokenAudience)
	case method.SecretRef != nil:
		token, err := l.references.SecretKey(ctx, metav1alpha1.SecretKeySelector{Name: method.SecretRef.Name, Key: method.SecretRef.Key})

		return strings.TrimSpace(string(token)), err
	default:
		token, err := os.ReadFile(podToken)
		if err != nil {
			return "", provider.InvalidConfig("spec.auth.kubernetes: neither serviceAccountRef nor secretRef is set, and the provider has no token of its own: %v", err)
		}

		return strings.TrimSpace(string(token)), nil
	}
}

// loginError is a refusal of the login itself: every call would fail by it.
func loginError(what string, err error) error {
	typed := provider.AsError(requestError(what, err))
	if typed.Code == accessDenied || provider.AsError(typed).Reason == "INVALID_REQUEST" {
		return provider.Unauthenticated("%s", typed.Message)
	}

	typed.StoreScope = true

	return typed
}

// check asks Vault about the token.
func (l *login) check(ctx context.Context) error {
	token, err := l.token(ctx)
	if err != nil {
		return err
	}

	if _, err := l.as(token).Auth().Token().LookupSelfWithContext(ctx); err != nil {
		return loginError("use the token", err)
	}

	return nil
}

// valid tells whether Vault still accepts the token, as far as it is known.
// That Vault does not answer is no proof that it does not.
func (l *login) valid(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.lookedUp.IsZero() && l.now().Sub(l.lookedUp) < lookupPause {
		return l.lastValid
	}

	_, err := l.as(l.current).Auth().Token().LookupSelfWithContext(ctx)

	var response *api.ResponseError

	l.lookedUp = l.now()
	l.lastValid = !errors.As(err, &response) || response.StatusCode >= 500

	return l.lastValid
}

// revoke ends a login that the store made itself.
func (l *login) revoke(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.current == "" || l.auth.TokenSecretRef != nil {
		return nil
	}

	err := l.as(l.current).Auth().Token().RevokeSelfWithContext(ctx, "")
	l.current = ""

	if err != nil {
		return requestError("revoke the login", err)
	}

	return nil
}

// as gives a client with a token of its own; the base client has none.
func (l *login) as(token string) *api.Client {
	client, err := l.client.CloneWithHeaders()
	if err != nil {
		// Cloning repeats what made the base client, which worked.
		client = l.client
	}

	client.SetToken(token)

	return client
}
