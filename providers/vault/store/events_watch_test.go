package store

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/vault/api/v2alpha1"
)

// late is the timeout of a test.
const late = 20 * time.Second

// bus serves subscriptions, as Vault does.
type bus struct {
	t           *testing.T
	subscribers chan *subscriber

	mu      sync.Mutex
	refused map[string]bool
}

// subscriber is an accepted subscription.
type subscriber struct {
	t       *testing.T
	request *http.Request
	*websocket.Conn
	// pings are those that came.
	pings *atomic.Int64
	// gone is closed when the subscription ends.
	gone <-chan struct{}
}

const (
	subscribeV1 = "sys/events/subscribe/kv-v1/*"
	subscribeV2 = "sys/events/subscribe/kv-v2/*"
)

// events adds event subscriptions to a Vault.
func (v *vault) events(t *testing.T) *bus {
	t.Helper()

	b := &bus{t: t, subscribers: make(chan *subscriber, 100), refused: map[string]bool{}}
	v.handle(subscribeV1, b.serve)
	v.handle(subscribeV2, b.serve)
	v.handle("auth/token/lookup-self", b.lookup)

	return b
}

// revoke makes a token unknown to Vault.
func (b *bus) revoke(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.refused[token] = true
}

// admits reports whether the token is valid, and answers the request if not.
func (b *bus) admits(w http.ResponseWriter, r *http.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	if !b.refused[r.Header.Get("X-Vault-Token")] {
		return true
	}

	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, `{"errors":["2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n"]}`)

	return false
}

func (b *bus) lookup(w http.ResponseWriter, r *http.Request) {
	if b.admits(w, r) {
		_, _ = io.WriteString(w, `{"data":{"id":"x"}}`)
	}
}

func (b *bus) serve(w http.ResponseWriter, r *http.Request) {
	if !b.admits(w, r) {
		return
	}

	pings := &atomic.Int64{}

	connection, err := websocket.Accept(w, r, &websocket.AcceptOptions{OnPingReceived: func(context.Context, []byte) bool { pings.Add(1); return true }})
	if err != nil {
		b.t.Errorf("cannot accept: %v", err)

		return
	}

	defer func() { _ = connection.CloseNow() }()

	gone := connection.CloseRead(context.Background()).Done()
	b.subscribers <- &subscriber{b.t, r, connection, pings, gone}

	<-gone
}

// next waits for the next subscription.
func (b *bus) next() *subscriber {
	b.t.Helper()

	select {
	case s := <-b.subscribers:
		return s
	case <-time.After(late):
		b.t.Fatal("no subscription")

		return nil
	}
}

// send sends a message.
func (s *subscriber) send(text string) {
	s.t.Helper()

	if err := s.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		s.t.Errorf("cannot send: %v", err)
	}
}

// ended waits until the other side has closed the connection.
func (s *subscriber) ended() {
	s.t.Helper()

	select {
	case <-s.gone:
	case <-time.After(late):
		s.t.Fatal("the subscription does not end")
	}
}

// watching is a running Watch.
type watching struct {
	t       *testing.T
	changes chan provider.Change
	done    chan error
	cancel  context.CancelFunc
}

// watches begins a watch, which ends with the test.
func watches(t *testing.T, s *Store, keys ...string) *watching {
	t.Helper()

	return hasty(t, s, late, keys...)
}

// hasty begins a watch that waits for an answer to its pings so long.
func hasty(t *testing.T, s *Store, pong time.Duration, keys ...string) *watching {
	t.Helper()

	s.timing = timing{backoffStep: time.Millisecond, checkInterval: 10 * time.Millisecond, pongTimeout: pong, lookupInterval: 20 * time.Millisecond, handshake: late}

	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t: t, changes: make(chan provider.Change), done: make(chan error, 1), cancel: cancel}

	go func() {
		w.done <- s.Watch(ctx, keys, func(change provider.Change) error {
			select {
			case w.changes <- change:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(w.done)
	}()

	t.Cleanup(func() {
		cancel()

		for range w.done {
			continue
		}
	})

	return w
}

func (w *watching) next() provider.Change {
	w.t.Helper()

	select {
	case change := <-w.changes:
		return change
	case err := <-w.done:
		w.t.Fatalf("the watch ended: %v", err)
	case <-time.After(late):
		w.t.Fatal("no change is reported")
	}

	return provider.Change{}
}

// expect fails the test unless the next change is the given one.
func (w *watching) expect(why string, want provider.Change) {
	w.t.Helper()

	if diff := cmp.Diff(want, w.next()); diff != "" {
		w.t.Fatalf("%s (-want +got):\n%s", why, diff)
	}
}

// established waits for the first answer.
func (w *watching) established() { w.t.Helper(); w.expect("the first answer", provider.Change{}) }

// resyncs waits for a resync, which means that changes may have been missed.
func (w *watching) resyncs(why string) { w.t.Helper(); w.expect(why, provider.Change{Resync: true}) }

// ends returns the error that the watch ends with, after any changes.
func (w *watching) ends() error {
	w.t.Helper()

	for {
		select {
		case <-w.changes:
		case err := <-w.done:
			return err
		case <-time.After(late):
			w.t.Fatal("the watch does not end")
		}
	}
}

func TestWatchReportsChanges(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	s := with(v, func(s *setup) {
		s.spec.Namespace = "team"
		s.spec.Headers = map[string]string{"X-Own": "value"}
	}).open(t)
	w := watches(t, s, "app", "app/db")

	vault := b.next()
	w.established()

	if got := v.last(t, subscribeV2); got.namespace != "team" || got.token != canary+"-1" {
		t.Errorf("subscribed with %+v", got)
	}

	query := vault.request.URL.Query()
	if query.Get("json") != "true" || query.Get("filter") != `source_plugin_mount == "secret/"` || query.Has("namespaces") {
		t.Errorf("subscribed to %v", query)
	}

	if got := vault.request.Header; got.Get("X-Own") != "value" || got.Get("X-Vault-Request") != "true" {
		t.Errorf("subscribed with headers that lack those of the config, or of Vault's library")
	}

	vault.send(happened("kv-v2/data-write", "secret/", "secret/data/other"))
	vault.send(happened("kv-v2/data-write", "secret/", "secret/data/app"))
	w.expect("the other is not watched", provider.Change{Keys: []string{"app"}})

	// Far longer than any, and within the bound.
	vault.send(strings.Replace(happened("kv-v2/metadata-delete", "secret/", "secret/metadata/app/db"), "5f0f8bb5", strings.Repeat("5", maxEvent-1000), 1))
	w.expect("one after another", provider.Change{Keys: []string{"app/db"}})

	w.cancel()

	if err := w.ends(); !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ends with %v", err)
	}

	vault.ended()
}

// An engine of version 1, whose every secret is watched, in plain HTTP.
func TestWatchOfVersion1(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)

	plain := httptest.NewServer(v.Config.Handler)
	defer plain.Close()

	w := watches(t, with(v, token, func(s *setup) {
		s.spec.Server, s.spec.Path, s.spec.Version = plain.URL, "kv1", v2alpha1.KVv1
	}).open(t))

	vault := b.next()
	w.established()
	vault.send(happened("kv-v1/write", "kv1/", "kv1/app"))
	w.expect("by all its names", provider.Change{Keys: []string{"/app", "/kv1/app", "app", "kv1/app"}})
	w.cancel()
	vault.ended()
}

func TestWatchChecksKeys(t *testing.T) {
	t.Parallel()

	s := with(newVault(t)).open(t)

	err := s.Watch(t.Context(), []string{"app", "../app"}, func(provider.Change) error { return nil })
	if typed := errorOf(t, err); typed.Code != codes.InvalidArgument || !strings.Contains(typed.Message, `"../app"`) {
		t.Errorf("a key that is no path: %v", err)
	}
}

// If a subscription ends for any reason, the watch continues, and reports that it
// may have missed changes.
func TestWatchResumes(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, why string
		end       func(*subscriber)
	}{
		{"closed", "Vault steps down, or finds the reader too slow", func(s *subscriber) { _ = s.Close(websocket.StatusNormalClosure, "") }},
		{"failed", "Vault says so", func(s *subscriber) { _ = s.Close(websocket.StatusInternalError, canary) }},
		{"cut", "Vault was killed", func(s *subscriber) { _ = s.CloseNow() }},
		{"malformed", "what it was about is not known", func(s *subscriber) { s.send(`{"data":`) }},
		{"oversized", "likewise; nothing so long is read", func(s *subscriber) { s.send(`{"data":"` + strings.Repeat("x", maxEvent) + `"}`) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			b := v.events(t)
			w := watches(t, with(v).open(t), "app")

			vault := b.next()
			w.established()
			test.end(vault)

			again := b.next()
			w.resyncs(test.why)
			again.send(happened("kv-v2/data-write", "secret/", "secret/data/app"))
			w.expect("it continues", provider.Change{Keys: []string{"app"}})
			vault.ended()
		})
	}
}

// A Vault that ends all subscriptions at once is not called forever: the operator
// retries later.
func TestWatchGivesUp(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, says string
		end        func(*subscriber)
	}{
		{"closed", "has ended the subscription, with status 1001", func(s *subscriber) { _ = s.Close(websocket.StatusGoingAway, canary) }},
		{"cut", "the connection broke", func(s *subscriber) { _ = s.CloseNow() }},
		{"malformed", "is no event of Vault's", func(s *subscriber) { s.send(canary) }},
		{"oversized", "more than 65536 bytes", func(s *subscriber) { s.send(strings.Repeat("x", maxEvent+1)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			b := v.events(t)
			w := watches(t, with(v).open(t))

			go func() {
				for range maxFailures + 1 {
					test.end(b.next())
				}
			}()

			if typed := errorOf(t, w.ends()); typed.Code != codes.Unavailable || !strings.Contains(typed.Message, test.says) {
				t.Errorf("it ends with %+v, want Unavailable with %q", typed, test.says)
			}

			if n := len(v.got(subscribeV2)); n != maxFailures+1 {
				t.Errorf("%d subscriptions, want %d", n, maxFailures+1)
			}
		})
	}
}

// While there are no events, the watch renews the login, because no other call may.
func TestWatchOutlivesItsToken(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	config := with(v)
	s := config.open(t)
	w := watches(t, s, "app")

	vault := b.next()
	w.established()

	// Two thirds of the lease of 90 s.
	config.clock.pass(61 * time.Second)
	eventually(t, "the login is renewed", func() bool {
		s.login.mu.Lock()
		defer s.login.mu.Unlock()

		return s.login.renewAt.After(config.clock.Now())
	})
	vault.send(happened("kv-v2/data-write", "secret/", "secret/data/app"))
	w.expect("a renewal changes nothing", provider.Change{Keys: []string{"app"}})

	v.mu.Lock()
	v.renewed = 1 // the end of its whole life
	v.mu.Unlock()

	config.clock.pass(61 * time.Second)

	again := b.next()
	w.resyncs("another token has another subscription")
	vault.ended()

	if got := again.request.Header.Get("X-Vault-Token"); got != canary+"-2" {
		t.Error("the second subscription has the token of the first")
	}

	again.send(happened("kv-v2/data-write", "secret/", "secret/data/app"))
	w.expect("it continues", provider.Change{Keys: []string{"app"}})

	if subscriptions, renewals := len(v.got(subscribeV2)), len(v.got("auth/token/renew-self")); subscriptions != 2 || renewals != 2 {
		t.Errorf("%d subscriptions and %d renewals", subscriptions, renewals)
	}
}

// A token may be revoked before it expires.
func TestWatchOfARevokedLogin(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	w := watches(t, with(v).open(t), "app")

	vault := b.next()
	w.established()
	b.revoke(canary + "-1")
	_ = vault.Close(websocket.StatusNormalClosure, "")

	again := b.next()
	w.resyncs("it has logged in again")

	if got := again.request.Header.Get("X-Vault-Token"); got != canary+"-2" {
		t.Error("it subscribed with the token that was revoked")
	}
}

// Vault 1.15 keeps the subscription of a revoked token open and sends no more
// events.
func TestWatchFindsThatItsTokenHasEnded(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	w := watches(t, with(v).open(t))

	b.next()
	w.established()
	eventually(t, "the token is looked up", func() bool { return lookups(v, canary+"-1") > 1 })
	b.revoke(canary + "-1")

	if again := b.next(); again.request.Header.Get("X-Vault-Token") != canary+"-2" {
		t.Error("it subscribed with the token that was revoked")
	}

	w.resyncs("it has logged in again")

	// A static token has no replacement.
	w = watches(t, with(v, token).open(t))

	b.next()
	w.established()
	eventually(t, "the token is looked up", func() bool { return lookups(v, canary) > 1 })
	b.revoke(canary)

	if typed := errorOf(t, w.ends()); typed.Code != codes.Unauthenticated {
		t.Errorf("it ends with %+v", typed)
	}
}

// lookups of a token.
func lookups(v *vault, token string) int {
	n := 0

	for _, r := range v.got("auth/token/lookup-self") {
		if r.token == token {
			n++
		}
	}

	return n
}

// A token without the permission to look itself up is not considered expired.
func TestWatchKeepsATokenThatMayNotBeLookedUp(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	v.refuse("auth/token/lookup-self")

	w := watches(t, with(v).open(t), "app")
	vault := b.next()
	w.established()

	eventually(t, "some pulses pass", func() bool { return vault.pings.Load() > 5 })
	vault.send(happened("kv-v2/data-write", "secret/", "secret/data/app"))
	w.expect("it continues", provider.Change{Keys: []string{"app"}})

	if n := len(v.got("auth/token/lookup-self")); n != 1 {
		t.Errorf("it was looked up %d times", n)
	}
}

// If both token and login are refused, the store is unusable.
func TestWatchOfALoginThatIsRefused(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, why string
		edit      func(*setup)
	}{
		{"token", "a static token has no replacement", token},
		{"login", "it was refused by Vault's own word", func(*setup) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			b := v.events(t)
			config := with(v, test.edit)
			s := config.open(t)
			w := watches(t, s)

			vault := b.next()
			w.established()

			b.revoke(vault.request.Header.Get("X-Vault-Token"))
			v.refuse("auth/kubernetes/login")

			_ = vault.Close(websocket.StatusNormalClosure, "")

			if typed := errorOf(t, w.ends()); typed.Code != codes.Unauthenticated || !typed.StoreScope {
				t.Errorf("%s: it ends with %+v", test.why, typed)
			}
		})
	}
}

func TestWatchThatIsRefused(t *testing.T) {
	t.Parallel()

	const html = `<html>` + canary + `</html>`

	for _, test := range []struct {
		name, why string
		status    int
		body      string
		want      codes.Code
		says      string
	}{
		{"no right", "which one, a user cannot guess", http.StatusForbidden, `{"errors":["1 error occurred:\n\t* permission denied\n\n"]}`, codes.PermissionDenied, `need "read" of "sys/events/subscribe/kv-v2/*", and "subscribe" of "secret/*"`},
		{"no such path", "the community edition", http.StatusNotFound, `{"errors":["1 error occurred:\n\t* unsupported path\n\n"]}`, codes.Unimplemented, "this Vault has no events"},
		{"no handler", "Vault's answer for an unknown path", http.StatusNotFound, `{"errors":[]}`, codes.Unimplemented, "this Vault has no events"},
		{"unsupported path", "as older versions say it", http.StatusBadRequest, `{"errors":["unsupported path"]}`, codes.Unimplemented, "this Vault has no events"},
		{"unsupported operation", "likewise", http.StatusMethodNotAllowed, `{"errors":["1 error occurred:\n\t* unsupported operation\n\n"]}`, codes.Unimplemented, "this Vault has no events"},
		{"not implemented", "from any server", http.StatusNotImplemented, html, codes.Unimplemented, "this Vault has no events"},
		{"a gateway's 404", "it says nothing of what Vault can", http.StatusNotFound, html, codes.Unavailable, "not as Vault does"},
		{"a gateway's page", "it lets no websocket through", http.StatusOK, html, codes.Unavailable, "support websockets"},
		{"an upgrade that was lost", "likewise", http.StatusUpgradeRequired, html, codes.Unavailable, "support websockets"},
		{"sealed", "it passes", http.StatusServiceUnavailable, `{"errors":["Vault is sealed"]}`, codes.Unavailable, "Vault is sealed"},
		{"throttled", "it passes", http.StatusTooManyRequests, `{"errors":["request path quota exceeded"]}`, codes.ResourceExhausted, "throttles"},
		{"failed", "Vault 1.15 does while another subscription ends, and gives no reason", http.StatusBadRequest, "Error subscribing", codes.Unavailable, "answers 400"},
		{"wrong", "it stays so", http.StatusBadRequest, `{"errors":["invalid parameter for JSON"]}`, codes.InvalidArgument, "invalid parameter for JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			v := newVault(t)
			v.answer(subscribeV2, test.status, test.body)

			typed := errorOf(t, watches(t, with(v).open(t)).ends())
			if typed.Code != test.want || !strings.Contains(typed.Message, test.says) || !strings.Contains(typed.Message, "cannot watch") {
				t.Errorf("%s: %v (%s), want %v with %q", test.why, typed, typed.Code, test.want, test.says)
			}

			want := 1
			if test.want == codes.Unavailable || test.want == codes.ResourceExhausted {
				want += maxFailures
			}

			if n := len(v.got(subscribeV2)); n != want {
				t.Errorf("%s: %d attempts, want %d", test.why, n, want)
			}
		})
	}
}

// A token that may not be looked up may have expired. If a new token is refused as
// well, the permission is missing.
func TestWatchWithoutTheRightToLookUp(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	v.refuse(subscribeV2)
	v.refuse("auth/token/lookup-self")

	if typed := errorOf(t, watches(t, with(v).open(t)).ends()); typed.Code != codes.PermissionDenied {
		t.Errorf("it ends with %+v", typed)
	}

	if n := len(v.got("auth/kubernetes/login")); n != 2 {
		t.Errorf("%d logins, want 2", n)
	}
}

// A slow receiver neither blocks Vault, which would end the subscription, nor makes
// the provider buffer without bound.
func TestWatchWithASlowListener(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	w := watches(t, with(v).open(t), "a", "b")

	vault := b.next()

	// The first answer has not been received yet.
	for range 500 {
		vault.send(happened("kv-v2/data-write", "secret/", "secret/data/a"))
		vault.send(happened("kv-v2/data-write", "secret/", "secret/data/b"))
	}

	if err := vault.Ping(t.Context()); err != nil {
		t.Fatalf("no reader: %v", err)
	}

	w.established()
	w.expect("all at once", provider.Change{Keys: []string{"a", "b"}})

	if n := len(v.got(subscribeV2)); n != 1 {
		t.Errorf("%d subscriptions", n)
	}
}

// An error of the receiver ends the watch and is returned.
func TestWatchEndsWithItsListener(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	s := with(v).open(t)
	enough := provider.Unavailable("enough")

	if err := s.Watch(t.Context(), nil, func(provider.Change) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("it ends with %v", err)
	}

	b.next().ended()

	if n := len(v.got(subscribeV2)); n != 1 {
		t.Errorf("%d subscriptions", n)
	}
}

// A connection that a firewall drops shows no error.
func TestWatchFindsADeadConnection(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)
	silent := make(chan struct{})

	v.handle(subscribeV2, func(w http.ResponseWriter, r *http.Request) {
		v.handle(subscribeV2, b.serve)

		connection, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("cannot accept: %v", err)

			return
		}

		<-silent

		_ = connection.CloseNow()
	})

	w := hasty(t, with(v).open(t), 100*time.Millisecond)
	w.established()
	b.next()
	w.resyncs("the pings are not answered")
	close(silent)
}

// A standby server sends its callers to the active one.
func TestWatchGoesToTheActiveServer(t *testing.T) {
	t.Parallel()

	v := newVault(t)
	b := v.events(t)

	redirect := func(to func(*http.Request) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, to(r), http.StatusTemporaryRedirect)
		}
	}

	standby := newVault(t)
	standby.handle(subscribeV2, redirect(func(r *http.Request) string { return v.URL + r.URL.RequestURI() }))

	bundle := func(s *setup) { s.spec.CABundle = slices.Concat(s.spec.CABundle, v.certificate()) }

	w := watches(t, with(standby, bundle).open(t), "app")
	vault := b.next()
	w.established()

	if got := v.last(t, subscribeV2); got.token != canary+"-1" || vault.request.URL.Query().Get("json") != "true" {
		t.Errorf("it subscribed with %+v", got)
	}

	plain := httptest.NewServer(v.Config.Handler)
	defer plain.Close()

	for why, to := range map[string]func(*http.Request) string{
		"in a circle":    func(r *http.Request) string { return standby.URL + r.URL.RequestURI() },
		"out of TLS":     func(r *http.Request) string { return plain.URL + r.URL.RequestURI() },
		"to no location": func(*http.Request) string { return "https://a:b:c/" },
	} {
		standby.handle(subscribeV2, redirect(to))

		before := len(v.got(subscribeV2))
		if typed := errorOf(t, watches(t, with(standby, bundle).open(t)).ends()); typed.Code != codes.Unavailable {
			t.Errorf("%s: it ends with %+v", why, typed)
		}

		if n := len(v.got(subscribeV2)) - before; n != 0 {
			t.Errorf("%s: the token went along", why)
		}
	}
}

// A server that supports HTTP/2 is called with HTTP/1.1 for websockets: Vault does
// not support websockets over HTTP/2.
func TestWatchBesideHTTP2(t *testing.T) {
	t.Parallel()

	v := newVault(t, func(config *tls.Config) { config.NextProtos = []string{"h2", "http/1.1"} })
	b := v.events(t)
	looked := make(chan int, 1)

	v.handle("auth/token/lookup-self", func(w http.ResponseWriter, r *http.Request) {
		select {
		case looked <- r.ProtoMajor:
		default:
		}

		b.lookup(w, r)
	})

	s := with(v).open(t)
	w := watches(t, s, "app")
	vault := b.next()
	w.established()

	if _, err := s.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}

	if others, own := <-looked, vault.request.ProtoMajor; others != 2 || own != 1 {
		t.Errorf("HTTP/%d for the subscription, HTTP/%d for others", own, others)
	}

	vault.send(happened("kv-v2/data-write", "secret/", "secret/data/app"))
	w.expect("it works", provider.Change{Keys: []string{"app"}})
}

// The metrics count a subscription as any other request.
func TestWatchIsCounted(t *testing.T) {
	t.Parallel()

	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/"+subscribeV2, http.NoBody)
	if got := operation(request); got != "Subscribe" {
		t.Errorf("it is counted as %q", got)
	}
}

// eventually polls for a condition that has no channel.
func eventually(t *testing.T, why string, holds func() bool) {
	t.Helper()

	for until := time.Now().Add(late); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("it never happens that %s", why)
		}
	}
}
