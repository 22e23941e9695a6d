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

// lookupPause is the least time between two questions whether a token still
// holds: each refused read would ask one.
const lookupPause = 10 * time.Second

// login is a login to Vault, which the stores that would log in alike share.
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

// token returns a token that is good for now: the present one, renewed when two
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

// renew prolongs the token. It reports whether that is worth anything: a renewal
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
	client, err := l.asSelf("")
	if err != nil {
		return nil, err
	}

	return l.credentials.perform(ctx, client)
}

// check asks Vault about the token.
func (l *login) check(ctx context.Context) error {
	token, err := l.token(ctx)
	if err != nil {
		return err
	}

	return l.holds(ctx, token)
}

// holds asks Vault about a token.
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

// refused reports whether Vault refuses a token. Nothing but its word proves that.
func (l *login) refused(ctx context.Context, token string) bool {
	err := l.holds(ctx, token)

	return err != nil && provider.AsError(err).Code == codes.Unauthenticated
}

// drop forgets a token that Vault refuses, so that the next call logs in anew.
func (l *login) drop(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.current == token {
		l.current = ""
	}
}

// valid reports whether Vault still accepts the token, as far as it is known.
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

// revoke ends a login, unless the config names its token.
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

// asSelf returns a client for what concerns a token itself: in the namespace that
// it belongs to.
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
