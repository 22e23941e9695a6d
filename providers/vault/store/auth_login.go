package store

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"
)

// lookupPause is the minimum time between two lookups of a token: every refused read
// would otherwise cause one.
const lookupPause = 10 * time.Second

// login is a login to Vault, shared by the stores with the same credentials.
type login struct {
	client      *api.Client
	credentials credentials
	now         func() time.Time

	mu        sync.Mutex
	current   string
	renewable bool
	life      time.Duration
	renewAt   time.Time
	expires   time.Time

	lookedUp  time.Time
	lastValid bool
}

// token returns a valid token: the current one, which is renewed after two thirds of
// its lifetime, or that of a new login.
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
		// The old token is still valid if Vault is unavailable for a moment.
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

// renew renews the token, and reports whether that was sufficient: a renewal for less
// than half of the login's lifetime means that the token reaches its maximum lifetime,
// and further renewals would follow ever faster.
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

// use sets the token from the response of a login or a renewal.
func (l *login) use(auth *api.SecretAuth) {
	if auth.ClientToken != l.current {
		// The result of the lookup is that of another token.
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
	client, err := l.asSelf("")
	if err != nil {
		return nil, err
	}

	return l.credentials.perform(ctx, client)
}

// check looks up the login's token.
func (l *login) check(ctx context.Context) error {
	token, err := l.token(ctx)
	if err != nil {
		return err
	}

	return l.holds(ctx, token)
}

// holds looks up a token.
func (l *login) holds(ctx context.Context, token string) error {
	client, err := l.asSelf(token)
	if err != nil {
		return err
	}

	if _, err := client.Auth().Token().LookupSelfWithContext(ctx); err != nil {
		return loginError("use the token", err)
	}

	return nil
}

// refused reports whether Vault refuses a token. Any other failure proves nothing.
func (l *login) refused(ctx context.Context, token string) bool {
	err := l.holds(ctx, token)

	return err != nil && provider.AsError(err).Code == codes.Unauthenticated
}

// drop removes a token that Vault refuses, so that the next call logs in again.
func (l *login) drop(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.current == token {
		l.current = ""
	}
}

// valid reports whether Vault accepts the token. It returns false only if Vault has
// refused it.
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

// revoke revokes the token, unless the config names it.
func (l *login) revoke(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.current == "" || l.credentials.static() {
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

// asSelf returns a client for requests about a token itself, in its own namespace.
func (l *login) asSelf(token string) (*api.Client, error) {
	client, err := as(l.client, token)
	if err != nil {
		return nil, err
	}

	if l.credentials.auth.Namespace != "" {
		client.SetNamespace(l.credentials.auth.Namespace)
	}

	return client, nil
}

// as returns a client with a token of its own; the base client has none.
func as(base *api.Client, token string) (*api.Client, error) {
	client, err := base.CloneWithHeaders()
	if err != nil {
		return nil, provider.Unavailable("cannot prepare a request to Vault: %v", err)
	}

	client.SetToken(token)

	return client, nil
}
