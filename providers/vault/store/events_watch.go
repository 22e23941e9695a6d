package store

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/vault/api"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// maxFailures is after how many consecutive failures a watch ends.
	maxFailures = 5
	// backoffStep is the interval before the second attempt to subscribe; it grows
	// by itself with each failure.
	backoffStep = time.Second
	// maxPause bounds the interval before an attempt, whatever Vault asks for.
	maxPause = time.Minute
	// longSubscription is how long a subscription must last to reset the failures.
	longSubscription = time.Minute
	// checkInterval is the interval of checks of the login and the connection.
	checkInterval = 15 * time.Second
	// pongTimeout bounds the wait for the answer to a ping.
	pongTimeout = 15 * time.Second
	// lookupInterval is the interval of lookups of the token.
	lookupInterval = 5 * time.Minute
	// maxEvent bounds an event, in bytes. Vault's events have about a thousand: they
	// contain names and no values.
	maxEvent = 64 << 10
	// maxPending bounds the keys that wait for a slow receiver, in bytes. More of them
	// are replaced by a resync.
	maxPending = 256 << 10
)

// timing of watches.
type timing struct{ backoffStep, checkInterval, pongTimeout, lookupInterval, handshake time.Duration }

// errReplaced means that the login has another token. A subscription ends with the
// token that it was created with.
var errReplaced = errors.New("the login has another token now")

// Watch reports changes from Vault's events, which contain names of secrets and no
// values. A subscription is bound to the token that it was created with: when the
// login gets another token, the subscription is replaced. It fails with Unsupported
// for a Vault without events. For secrets without the capability "subscribe" Vault
// sends no events, and no error either.
func (s *Store) Watch(ctx context.Context, keys []string, report func(provider.Change) error) error {
	w := &watch{store: s, report: report}
	if err := w.filter(keys); err != nil {
		return err
	}

	for failures := 0; ; {
		began := time.Now()
		err := w.run(ctx)

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case w.refused != nil:
			return w.refused
		case errors.Is(err, errReplaced):
			// Such a subscription has lasted at least one check interval.
			continue
		case !isTransient(err):
			return err
		case time.Since(began) > longSubscription:
			failures = 0
		}

		if failures++; failures > maxFailures {
			return err
		}

		// Jitter, because all watches subscribe again after a restart of Vault.
		pause := s.timing.backoffStep*time.Duration(failures) + rand.N(s.timing.backoffStep) //nolint:gosec // not for secrets
		pause = max(pause, min(provider.AsError(err).RetryAfter, maxPause))

		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isTransient reports whether another attempt may succeed.
func isTransient(err error) bool {
	switch provider.AsError(err).Code {
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		return true
	default:
		return false
	}
}

// watch is one Watch.
type watch struct {
	store  *Store
	report func(provider.Change) error
	// refused is the error of report, which ends the watch.
	refused error
	// watched are the keys to report, by the path of their secret; nil means every
	// secret.
	watched map[string][]string
	// established reports whether a subscription was established before.
	established bool
	// relogin reports whether the login's token was dropped because Vault refused it,
	// and no subscription was established since.
	relogin bool
}

// filter restricts the watch to keys; none means all.
func (w *watch) filter(keys []string) error {
	if len(keys) == 0 {
		return nil
	}

	w.watched = make(map[string][]string, len(keys))

	for _, key := range keys {
		at, err := w.store.engine.locate(key, "", false)
		if err != nil {
			return err
		}

		if !slices.Contains(w.watched[at.path], key) {
			w.watched[at.path] = append(w.watched[at.path], key)
		}
	}

	return nil
}

// run subscribes and reports changes until the subscription ends.
func (w *watch) run(ctx context.Context) error {
	token, err := w.store.login.token(ctx)
	if err != nil {
		return err
	}

	connection, err := w.subscribe(ctx, token)
	if err != nil {
		return err
	}

	// Vault needs no closing handshake.
	defer func() { _ = connection.CloseNow() }()

	w.relogin = false

	// For a token without the right to look itself up, a refused lookup proves
	// nothing.
	canLookUp := !w.store.login.refused(ctx, token)

	var running sync.WaitGroup
	defer running.Wait()

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	changes := newChanges()

	running.Go(func() { end(w.listen(ctx, connection, changes)) })
	running.Go(func() { end(w.check(ctx, connection, token, canLookUp)) })

	return w.forward(ctx, changes)
}

// forward reports that the watch is established, or with a resync that it is
// established again, and then each change.
func (w *watch) forward(ctx context.Context, changes *changes) error {
	change := provider.Change{Resync: w.established}
	w.established = true

	for {
		if err := w.report(change); err != nil {
			w.refused = err

			return err
		}

		select {
		case <-changes.pending:
			change = changes.take()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listen receives events until the subscription ends.
func (w *watch) listen(ctx context.Context, connection *websocket.Conn, changes *changes) error {
	for {
		_, text, err := connection.Read(ctx)
		if err != nil {
			return broken(err)
		}

		received, err := readEvent(text)
		if err != nil {
			return err
		}

		changes.add(w.store.engine.changed(received, w.watched))
	}
}

// broken returns the error of a subscription that ended.
func broken(err error) error {
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return provider.Unavailable("cannot watch: an event has more than %d bytes", maxEvent)
	}

	if ended, ok := errors.AsType[websocket.CloseError](err); ok {
		return provider.Unavailable("cannot watch: Vault has ended the subscription, with status %d", ended.Code)
	}

	return requestError("watch", err)
}

// check renews the login in time, and returns when the login has another token, or
// when the connection is dead. canLookUp reports whether the token has the right to
// look itself up.
func (w *watch) check(ctx context.Context, connection *websocket.Conn, token string, canLookUp bool) error {
	ticker := time.NewTicker(w.store.timing.checkInterval)
	defer ticker.Stop()

	for lookedUp := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}

		switch now, err := w.store.login.token(ctx); {
		case err != nil:
			return err
		case now != token:
			return errReplaced
		}

		// Vault may keep the subscription of a revoked token open, without sending
		// events.
		if canLookUp && time.Since(lookedUp) > w.store.timing.lookupInterval {
			lookedUp = time.Now()

			if w.store.login.refused(ctx, token) {
				return w.store.lost(token)
			}
		}

		// A connection that a firewall has dropped never fails by itself.
		if err := ping(ctx, connection, w.store.timing.pongTimeout); err != nil {
			return err
		}
	}
}

// ping returns an error where the connection is silent. Of a connection that has
// ended, listen has the reason, and ends ctx with it.
func ping(ctx context.Context, connection *websocket.Conn, timeout time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	if connection.Ping(limited) == nil {
		return nil
	}

	if errors.Is(limited.Err(), context.DeadlineExceeded) {
		return provider.Unavailable("cannot watch: Vault does not respond any more")
	}

	<-ctx.Done()

	return ctx.Err()
}

// subscribe opens a subscription.
func (w *watch) subscribe(ctx context.Context, token string) (*websocket.Conn, error) {
	client, err := as(w.store.client, token)
	if err != nil {
		return nil, err
	}

	handshake, cancel := context.WithTimeout(ctx, w.store.timing.handshake)
	defer cancel()

	path := w.store.engine.subscription()
	request := client.NewRequest(http.MethodGet, "/v1/"+path)
	request.Headers.Set("X-Vault-Token", token)

	address := request.URL
	address.RawQuery = w.store.engine.events().Encode()

	for standby := false; ; standby = true {
		connection, response, err := websocket.Dial(handshake, address.String(), &websocket.DialOptions{ //nolint:bodyclose // it is closed, and replaced by what was read of it
			HTTPClient: w.store.connection.http, HTTPHeader: request.Headers,
		})
		if err == nil {
			connection.SetReadLimit(maxEvent)

			return connection, nil
		}

		if response == nil {
			return nil, requestError("watch: subscribe at "+path, err)
		}

		if next := active(address, response); next != nil && !standby {
			address = next

			continue
		}

		if response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized {
			return nil, w.denied(ctx, token, refusal(path, response))
		}

		return nil, refusal(path, response)
	}
}

// refusal returns the error of a refused subscription.
func refusal(path string, response *http.Response) error {
	what := "watch: subscribe at " + path

	answer := (&api.Response{Response: response}).Error()
	if answer == nil || response.StatusCode == http.StatusUpgradeRequired {
		return provider.Unavailable("cannot %s: the server answers %d and opens no websocket: does the proxy in front of Vault support websockets?", what, response.StatusCode)
	}

	if response.StatusCode == http.StatusNotImplemented || unsupported(answer) {
		return provider.Unsupported("cannot watch: this Vault has no events: it does not serve %s, which Vault Enterprise does from 1.16 on", path)
	}

	typed := provider.AsError(requestError(what, answer))

	switch {
	case response.StatusCode == http.StatusNotFound:
		// A proxy in front of Vault, or another server.
		return provider.Unavailable("cannot %s: the server answers 404, and not as Vault does", what)
	case response.StatusCode == http.StatusBadRequest && raw(answer):
		// Vault answers so for a failure of its own, as while another subscription ends.
		return provider.Unavailable("cannot %s: the server answers 400, without a reason", what)
	case typed.Code == codes.ResourceExhausted:
		typed.RetryAfter = retryAfter(response.Header)
	}

	return typed
}

// raw reports whether an answer is not in Vault's form.
func raw(err error) bool {
	var answer *api.ResponseError

	return errors.As(err, &answer) && answer.RawError
}

// unsupported reports whether Vault itself answers that it has no such path.
func unsupported(err error) bool {
	var answer *api.ResponseError
	if !errors.As(err, &answer) || answer.RawError || answer.Errors == nil {
		return false
	}

	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	case http.StatusBadRequest:
		return strings.Contains(brief(answer.Errors), "unsupported")
	default:
		return false
	}
}

// active returns the address to which a standby server redirects. As with other
// requests only one redirect is followed, and none from HTTPS to HTTP.
func active(from *url.URL, response *http.Response) *url.URL {
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect:
	default:
		return nil
	}

	next, err := response.Location()
	if err != nil || from.Scheme == "https" && next.Scheme != "https" {
		return nil
	}

	return next
}

// denied returns the error of a subscription that Vault answered with 401 or 403,
// either because the token is invalid or because it may not subscribe.
func (w *watch) denied(ctx context.Context, token string, refused error) error {
	s := w.store
	err := s.login.holds(ctx, token)

	switch {
	case err != nil && provider.AsError(err).Code != codes.Unauthenticated:
		return err
	case err == nil, w.relogin:
		// This includes a token that may not look itself up: the one before it was
		// refused, too.
		return provider.AccessDenied("%v: to watch secrets the policies of the login need \"read\" of %q, and \"subscribe\" of %q; only Vault Enterprise has events, from 1.16 on", refused, s.engine.subscription(), s.engine.secrets())
	}

	w.relogin = true

	return s.lost(token)
}

// lost handles a token that Vault refuses: the next attempt logs in again, unless the
// config names a token.
func (s *Store) lost(token string) error {
	if s.login.credentials.static() {
		return s.ended()
	}

	s.login.drop(token)

	return provider.Unavailable("cannot watch: Vault no longer accepts the login's token: the provider logs in again")
}

// changes are those that were received and not yet reported. They decouple Vault's
// events from a slow receiver.
type changes struct {
	// pending has an entry when there are changes.
	pending chan struct{}

	mu   sync.Mutex
	keys map[string]bool
	// size of the keys, in bytes.
	size   int
	resync bool
}

func newChanges() *changes {
	return &changes{pending: make(chan struct{}, 1), keys: map[string]bool{}}
}

func (c *changes) add(keys []string) {
	if len(keys) == 0 {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	for _, key := range keys {
		if !c.keys[key] {
			c.keys[key] = true
			c.size += len(key)
		}
	}

	if c.resync = c.resync || c.size > maxPending; c.resync {
		c.forget()
	}

	select {
	case c.pending <- struct{}{}:
	default:
	}
}

// take returns the changes and removes them.
func (c *changes) take() provider.Change {
	c.mu.Lock()
	defer c.mu.Unlock()

	change := provider.Change{Keys: slices.Sorted(maps.Keys(c.keys)), Resync: c.resync}
	c.resync = false
	c.forget()

	return change
}

func (c *changes) forget() {
	c.size = 0
	clear(c.keys)
}
