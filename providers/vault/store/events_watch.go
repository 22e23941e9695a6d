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
	// maxFailures in a row end a watch; about patience times their number lies
	// between two.
	maxFailures = 5
	patience    = time.Second
	// maxPause lies between two rounds at most, whatever Vault asks for.
	maxPause = time.Minute
	// longRound is how long a round lasts that makes earlier failures forgotten.
	longRound = time.Minute
	// pulse lies between two looks whether login and connection still hold.
	pulse = 15 * time.Second
	// pong is how long the answer to a ping may take.
	pong = 15 * time.Second
	// lookup lies between two questions whether Vault still accepts the token.
	lookup = 5 * time.Minute
	// maxEvent bounds an event, in bytes. Vault's have about a thousand: they
	// hold names and no values.
	maxEvent = 64 << 10
	// maxPending bounds the keys that wait for a slow listener, in bytes. With
	// more he is told to read everything, which costs him no more.
	maxPending = 256 << 10
)

// tempo of watches.
type tempo struct{ patience, pulse, pong, lookup, handshake time.Duration }

// errReplaced says that the login has another token now. The subscription ends
// with the old one.
var errReplaced = errors.New("the login has another token now")

// Watch tells of changes as Vault's events do, which name secrets and hold no
// values. A subscription is bound to the token that it was made with: when the
// login is replaced, another one takes its place. A Vault without events is
// Unsupported. Of secrets for which the login lacks the right "subscribe" Vault
// tells nothing, and no error either.
func (s *Store) Watch(ctx context.Context, keys []string, tell func(provider.Change) error) error {
	w := &watch{store: s, tell: tell}
	if err := w.narrow(keys); err != nil {
		return err
	}

	for failures := 0; ; {
		began := time.Now()
		err := w.round(ctx)

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case w.refused != nil:
			return w.refused
		case errors.Is(err, errReplaced):
			// A round that ends so has lasted a pulse at least.
			continue
		case !isTransient(err):
			return err
		case time.Since(began) > longRound:
			failures = 0
		}

		if failures++; failures > maxFailures {
			return err
		}

		// All watches of a Vault that is started anew come back by it.
		pause := s.tempo.patience*time.Duration(failures) + rand.N(s.tempo.patience) //nolint:gosec // not for secrets
		pause = max(pause, min(provider.AsError(err).RetryAfter, maxPause))

		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isTransient reports whether another try may help.
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
	store *Store
	tell  func(provider.Change) error
	// refused is the error that tell has ended the watch with.
	refused error
	// watched are the keys to tell of, by the path of their secret; nil means
	// every secret.
	watched map[string][]string
	// stands reports whether the first answer was given.
	stands bool
	// anew says that the login was made anew, for Vault refused its token, and
	// nothing was subscribed to since.
	anew bool
}

// narrow takes the keys that are watched.
func (w *watch) narrow(keys []string) error {
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

// round is one subscription, from its beginning to its end.
func (w *watch) round(ctx context.Context) error {
	token, err := w.store.login.token(ctx)
	if err != nil {
		return err
	}

	connection, err := w.subscribe(ctx, token)
	if err != nil {
		return err
	}

	// Vault waits for no word of farewell.
	defer func() { _ = connection.CloseNow() }()

	w.anew = false

	// A token that may not be looked up says nothing when that is refused.
	lookable := !w.store.login.refused(ctx, token)

	var running sync.WaitGroup
	defer running.Wait()

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	changes := newChanges()

	running.Go(func() { end(w.listen(ctx, connection, changes)) })
	running.Go(func() { end(w.keep(ctx, connection, token, lookable)) })

	return w.report(ctx, changes)
}

// report tells that the watch stands, and then of what changes.
func (w *watch) report(ctx context.Context, changes *changes) error {
	change := provider.Change{Resync: w.stands}
	w.stands = true

	for {
		if err := w.tell(change); err != nil {
			w.refused = err

			return err
		}

		select {
		case <-changes.some:
			change = changes.take()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listen takes events until the subscription ends.
func (w *watch) listen(ctx context.Context, connection *websocket.Conn, changes *changes) error {
	for {
		_, text, err := connection.Read(ctx)
		if err != nil {
			return broken(err)
		}

		told, err := readEvent(text)
		if err != nil {
			return err
		}

		changes.add(w.store.engine.changed(told, w.watched))
	}
}

// broken says why a subscription ended.
func broken(err error) error {
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return provider.Unavailable("cannot watch: an event has more than %d bytes", maxEvent)
	}

	if ended, ok := errors.AsType[websocket.CloseError](err); ok {
		return provider.Unavailable("cannot watch: Vault has ended the subscription, with status %d", ended.Code)
	}

	return requestError("watch", err)
}

// keep renews the login in time, though nobody may read anything, and ends the
// round when the login has another token, or when the connection is dead.
// lookable says that Vault can be asked about the token.
func (w *watch) keep(ctx context.Context, connection *websocket.Conn, token string, lookable bool) error {
	ticker := time.NewTicker(w.store.tempo.pulse)
	defer ticker.Stop()

	for asked := time.Now(); ; {
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

		// Vault may keep a subscription whose token was revoked, and tell it of
		// nothing any more.
		if lookable && time.Since(asked) > w.store.tempo.lookup {
			asked = time.Now()

			if w.store.login.refused(ctx, token) {
				return w.store.lost(token)
			}
		}

		// A connection that a firewall drops without a word is silent for ever.
		if err := ping(ctx, connection, w.store.tempo.pong); err != nil {
			return err
		}
	}
}

func ping(ctx context.Context, connection *websocket.Conn, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	if err := connection.Ping(ctx); err != nil {
		return provider.Unavailable("cannot watch: Vault does not answer any more")
	}

	return nil
}

// subscribe opens a subscription.
func (w *watch) subscribe(ctx context.Context, token string) (*websocket.Conn, error) {
	client, err := as(w.store.client, token)
	if err != nil {
		return nil, err
	}

	handshake, cancel := context.WithTimeout(ctx, w.store.tempo.handshake)
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

// refusal says why there is no subscription.
func refusal(path string, response *http.Response) error {
	what := "watch: subscribe at " + path

	answer := (&api.Response{Response: response}).Error()
	if answer == nil || response.StatusCode == http.StatusUpgradeRequired {
		return provider.Unavailable("cannot %s: the server answers %d and opens no websocket: does what stands before Vault let websockets through?", what, response.StatusCode)
	}

	if response.StatusCode == http.StatusNotImplemented || unsupported(answer) {
		return provider.Unsupported("cannot watch: this Vault tells of no events: it knows no %s, which Vault Enterprise has from 1.16 on", path)
	}

	typed := provider.AsError(requestError(what, answer))

	switch {
	case response.StatusCode == http.StatusNotFound:
		// What stands before Vault, or in its place.
		return provider.Unavailable("cannot %s: the server answers 404, and not as Vault does", what)
	case response.StatusCode == http.StatusBadRequest && raw(answer):
		// So Vault says that it failed, as it may while another subscription ends.
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

// unsupported reports whether Vault itself says that it has no such path.
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

// active is where a standby server sends its callers. As with other requests
// only one such step is made, and none out of TLS.
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

// denied tells a token that has ended from one without the right to subscribe.
func (w *watch) denied(ctx context.Context, token string, refused error) error {
	s := w.store
	err := s.login.holds(ctx, token)

	switch {
	case err != nil && provider.AsError(err).Code != codes.Unauthenticated:
		return err
	case err == nil, w.anew:
		// Also a token that may not even be looked up: the one before it was
		// refused, too.
		return provider.AccessDenied("%v: to watch secrets the policies of the login need \"read\" of %q, and \"subscribe\" of %q; only Vault Enterprise tells of events, from 1.16 on", refused, s.engine.subscription(), s.engine.secrets())
	}

	w.anew = true

	return s.lost(token)
}

// lost is what follows from Vault's refusal of a token: the next round logs in
// anew, where the config names no token.
func (s *Store) lost(token string) error {
	if s.login.credentials.static() {
		return s.ended()
	}

	s.login.drop(token)

	return provider.Unavailable("cannot watch: Vault no longer accepts the login's token: it logs in anew")
}

// changes wait to be told of. Events come as they come; whoever is told of them
// may take his time.
type changes struct {
	// some has an entry when there is something to tell.
	some chan struct{}

	mu   sync.Mutex
	keys map[string]bool
	// size of the keys, in bytes.
	size   int
	resync bool
}

func newChanges() *changes {
	return &changes{some: make(chan struct{}, 1), keys: map[string]bool{}}
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
	case c.some <- struct{}{}:
	default:
	}
}

// take returns what there is to tell.
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
