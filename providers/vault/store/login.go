package store

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

const (
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
	life      time.Duration
	renewAt   time.Time
	expires   time.Time

	lookedUp  time.Time
	lastValid bool
}

func newLogin(client *api.Client, spec *v2alpha1.VaultSpec, references provider.References, now func() time.Time) *login {
	return &login{client: client, auth: spec.Auth, references: references, now: now}
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

	alive := l.current != "" && now.Before(l.expires)
	if alive && l.renewable && l.renew(ctx) {
		return l.current, nil
	}

	auth, err := l.perform(ctx)
	if err != nil {
		// The old token may outlive a Vault that is away for a moment.
		if alive {
			l.renewAt = now.Add(lookupPause)

			return l.current, nil
		}

		return "", err
	}

	l.use(auth)
	l.life = time.Duration(auth.LeaseDuration) * time.Second

	return l.current, nil
}

// renew prolongs the token. It tells whether that is worth anything: a renewal
// that gives less than half of what the login gave shows that the token comes
// to the end of its whole life, and further ones would follow ever faster.
func (l *login) renew(ctx context.Context) bool {
	client, err := l.asSelf(l.current)
	if err != nil {
		return false
	}

	secret, err := client.Auth().Token().RenewSelfWithContext(ctx, 0)
	if err != nil || secret == nil || secret.Auth == nil || secret.Auth.ClientToken == "" || secret.Auth.LeaseDuration <= 0 {
		return false
	}

	l.use(secret.Auth)

	return time.Duration(secret.Auth.LeaseDuration)*time.Second >= l.life/2
}

// use takes over what a login or a renewal answered.
func (l *login) use(auth *api.SecretAuth) {
	if auth.ClientToken != l.current {
		// What was found out concerns another token.
		l.lookedUp = time.Time{}
	}

	l.current, l.renewable = auth.ClientToken, auth.Renewable
	l.renewAt, l.expires = time.Time{}, time.Time{}

	if life := time.Duration(auth.LeaseDuration) * time.Second; life > 0 {
		now := l.now()
		l.renewAt, l.expires = now.Add(life*2/3), now.Add(life)
	}
}

// perform logs in.
func (l *login) perform(ctx context.Context) (*api.SecretAuth, error) {
	if ref := l.auth.TokenSecretRef; ref != nil {
		token, err := l.references.SecretKey(ctx, *ref)
		if err != nil {
			return nil, err
		}

		trimmed := strings.TrimSpace(string(token))

		switch {
		case trimmed == "":
			return nil, provider.InvalidConfig("spec.auth.tokenSecretRef: key %q of Secret %q is empty", ref.Key, ref.Name)
		case strings.ContainsFunc(trimmed, func(r rune) bool { return !unicode.IsPrint(r) }):
			return nil, provider.InvalidConfig("spec.auth.tokenSecretRef: key %q of Secret %q is no token: it holds what cannot be printed", ref.Key, ref.Name)
		}

		return &api.SecretAuth{ClientToken: trimmed}, nil
	}

	if l.auth.Kubernetes == nil {
		return nil, provider.InvalidConfig("spec.auth: set tokenSecretRef or kubernetes")
	}

	return l.kubernetes(ctx, l.auth.Kubernetes)
}

func (l *login) kubernetes(ctx context.Context, method *v2alpha1.VaultKubernetesAuth) (*api.SecretAuth, error) {
	token, err := l.serviceAccountToken(ctx, method)
	if err != nil {
		return nil, err
	}

	mount := strings.Trim(method.MountPath, "/")
	if mount == "" {
		mount = "kubernetes"
	}

	client, err := l.asSelf("")
	if err != nil {
		return nil, err
	}

	secret, err := client.Logical().WriteWithContext(ctx, "auth/"+mount+"/login", map[string]any{"role": method.Role, "jwt": token})
	if err != nil {
		return nil, loginError("log in to role \""+method.Role+"\" at auth/"+mount, err)
	}

	if secret == nil || secret.Auth == nil || secret.Auth.ClientToken == "" {
		return nil, provider.Unavailable("cannot log in to role %q at auth/%s: Vault answered no token", method.Role, mount)
	}

	return secret.Auth, nil
}

// serviceAccountToken gives the token to log in with. It is never the provider
// Pod's own: spec.server is the tenant's to choose, and would get a token with
// all the provider's rights.
func (l *login) serviceAccountToken(ctx context.Context, method *v2alpha1.VaultKubernetesAuth) (string, error) {
	switch {
	case method.ServiceAccountRef != nil:
		return l.references.ServiceAccountToken(ctx, *method.ServiceAccountRef, tokenAudience)
	case method.SecretRef != nil:
		token, err := l.references.SecretKey(ctx, *method.SecretRef)

		return strings.TrimSpace(string(token)), err
	default:
		return "", provider.InvalidConfig("spec.auth.kubernetes: set serviceAccountRef or secretRef")
	}
}

// loginError is a refusal of the login itself: every call would fail by it.
func loginError(what string, err error) error {
	typed := provider.AsError(requestError(what, err))
	if typed.Code == accessDenied || typed.Code == codes.InvalidArgument {
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

	client, err := l.asSelf(token)
	if err != nil {
		return err
	}

	if _, err := client.Auth().Token().LookupSelfWithContext(ctx); err != nil {
		return loginError("use the token", err)
	}

	return nil
}

// valid tells whether Vault still accepts the token, as far as it is known.
// Nothing but its refusal is a proof that it does not.
func (l *login) valid(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	now := l.now()
	if since := now.Sub(l.lookedUp); since >= 0 && since < lookupPause {
		return l.lastValid
	}

	client, err := l.asSelf(l.current)
	if err != nil {
		return true
	}

	_, err = client.Auth().Token().LookupSelfWithContext(ctx)
	if ctx.Err() != nil {
		return true
	}

	var response *api.ResponseError

	refused := errors.As(err, &response) && (response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized)
	l.lookedUp, l.lastValid = now, !refused

	return l.lastValid
}

// revoke ends a login that the store made itself.
func (l *login) revoke(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.current == "" || l.auth.TokenSecretRef != nil {
		return nil
	}

	client, err := l.asSelf(l.current)
	if err != nil {
		return err
	}

	err = client.Auth().Token().RevokeSelfWithContext(ctx, "")
	l.current = ""

	if err != nil {
		return requestError("revoke the login", err)
	}

	return nil
}

// asSelf gives a client for what concerns a token itself: in the namespace that
// it belongs to.
func (l *login) asSelf(token string) (*api.Client, error) {
	client, err := as(l.client, token)
	if err != nil {
		return nil, err
	}

	if l.auth.Namespace != "" {
		client.SetNamespace(l.auth.Namespace)
	}

	return client, nil
}

// as gives a client with a token of its own; the base client has none.
func as(base *api.Client, token string) (*api.Client, error) {
	client, err := base.CloneWithHeaders()
	if err != nil {
		return nil, provider.Unavailable("cannot prepare a request to Vault: %v", err)
	}

	client.SetToken(token)

	return client, nil
}
