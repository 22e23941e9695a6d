package store

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // NTLM is made of it
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"golang.org/x/crypto/md4" //nolint:staticcheck,gosec // NTLM is made of it
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

// domain is a server that authenticates connections by NTLM version 2, as in
// [MS-NLMP], and resets a login whose messages are out of order.
type domain struct {
	*httptest.Server

	// schemes that it offers; broken ends the connection where the login ends,
	// torn before that.
	schemes      []string
	broken, torn atomic.Bool
	// logins and breaches of the order.
	logins, breaches atomic.Int32
}

// connection is how far the login of one is.
type connection struct {
	mu        sync.Mutex
	challenge []byte
	user      string
}

type connectionKey struct{}

func newDomain(t *testing.T, schemes []string, handle http.HandlerFunc) *domain {
	t.Helper()

	d := &domain{schemes: schemes}
	d.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.login(w, r) {
			handle(w, r)
		}
	}))
	d.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, &connection{})
	}
	d.Config.ErrorLog = log.New(io.Discard, "", 0)
	d.Start()
	t.Cleanup(d.Close)

	return d
}

// login answers what belongs to a login, and reports whether the connection is
// logged in.
func (d *domain) login(w http.ResponseWriter, r *http.Request) bool {
	c, _ := r.Context().Value(connectionKey{}).(*connection)

	c.mu.Lock()
	defer c.mu.Unlock()

	scheme, encoded, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	message, err := base64.StdEncoding.DecodeString(encoded)
	refuse := func(challenges ...string) bool {
		for _, challenge := range challenges {
			w.Header().Add("WWW-Authenticate", challenge)
		}

		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "who are you?")

		return false
	}

	switch {
	case scheme == "" && c.challenge != nil:
		d.breaches.Add(1) // another request during a login
		c.challenge = nil

		return refuse(d.schemes...)
	case scheme == "" && c.user != "":
		return true
	case scheme == "":
		return refuse(d.schemes...)
	case err != nil || !bytes.HasPrefix(message, []byte("NTLMSSP\x00")) || len(message) < 12:
		return refuse(d.schemes...)
	case message[8] == 1:
		c.challenge = binary.BigEndian.AppendUint64(nil, rand.Uint64()) //nolint:gosec // for a test

		if d.torn.Load() {
			w.Header().Set("Connection", "close")
		}

		return refuse(scheme + " " + base64.StdEncoding.EncodeToString(challengeMessage(c.challenge)))
	case d.broken.Load():
		panic(http.ErrAbortHandler)
	}

	user := proven(message, c.challenge)
	c.challenge, c.user = nil, user

	if user == "" {
		return refuse(d.schemes...)
	}

	d.logins.Add(1)

	return true
}

// challengeMessage of [MS-NLMP] 2.2.1.2, in Unicode and with extended session
// security, by a server that calls itself CORP.
func challengeMessage(challenge []byte) []byte {
	name := wide("CORP")
	// MsvAvNbDomainName and MsvAvEOL.
	info := slices.Concat([]byte{2, 0, 8, 0}, name, []byte{0, 0, 0, 0})

	message := make([]byte, 56)
	copy(message, "NTLMSSP\x00")
	message[8] = 2

	field := func(at, length, offset int) {
		binary.LittleEndian.PutUint16(message[at:], uint16(length))   //nolint:gosec // a few bytes
		binary.LittleEndian.PutUint16(message[at+2:], uint16(length)) //nolint:gosec // a few bytes
		binary.LittleEndian.PutUint32(message[at+4:], uint32(offset)) //nolint:gosec // a few bytes
	}

	field(12, len(name), len(message))
	binary.LittleEndian.PutUint32(message[20:], 0xa2898205)
	copy(message[24:], challenge)
	field(40, len(info), len(message)+len(name))

	return slices.Concat(message, name, info)
}

func wide(text string) []byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}

	return b
}

// proven returns the user that a message authenticates, as CORP\app; empty if it is invalid.
func proven(message, challenge []byte) string {
	part := func(at int) []byte {
		if len(message) < at+8 {
			return nil
		}

		length, offset := int(binary.LittleEndian.Uint16(message[at:])), int(binary.LittleEndian.Uint32(message[at+4:]))
		if len(message) < offset+length {
			return nil
		}

		return message[offset : offset+length]
	}

	answer, group, user := part(20), part(28), part(36)
	if challenge == nil || len(answer) < 16 || !bytes.Equal(group, wide("CORP")) || !bytes.Equal(user, wide("app")) {
		return ""
	}

	hash := md4.New() //nolint:gosec // as above
	hash.Write(wide(password))

	mac := func(key []byte, parts ...[]byte) []byte {
		h := hmac.New(md5.New, key)
		for _, p := range parts {
			h.Write(p)
		}

		return h.Sum(nil)
	}

	if !hmac.Equal(answer[:16], mac(mac(hash.Sum(nil), wide("APP"), group), challenge, answer[16:])) {
		return ""
	}

	return `CORP\app`
}

func ntlmSpec(server *domain) v2alpha1.WebhookSpec {
	key := func(key string) metav1alpha1.SecretKeySelector {
		return metav1alpha1.SecretKeySelector{Name: "api", Key: key}
	}

	return v2alpha1.WebhookSpec{
		URL:  server.URL + "/{{ .remoteRef.key }}",
		Push: &v2alpha1.WebhookRequest{Method: http.MethodPost}, Delete: &v2alpha1.WebhookRequest{Method: http.MethodPatch},
		Auth: &v2alpha1.WebhookAuth{NTLM: v2alpha1.WebhookNTLM{UsernameSecret: key("account"), PasswordSecret: key("password")}},
	}
}

func ntlmEnvironment(account, password string) provider.Environment {
	env := environment()
	env.References = references{"api/account": account, "api/password": password}

	return env
}

func TestNTLM(t *testing.T) {
	for _, scheme := range []string{"NTLM", "Negotiate"} {
		t.Run(scheme, func(t *testing.T) {
			var (
				pushed  atomic.Value
				emptied atomic.Bool
			)

			server := newDomain(t, []string{"Basic realm=corp", scheme}, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPatch:
					emptied.Store(r.ContentLength == 0 && len(r.TransferEncoding) == 0)
				case r.Method == http.MethodPost:
					body, _ := io.ReadAll(r.Body)
					pushed.Store(string(body))
				case r.URL.Path == "/missing":
					w.WriteHeader(http.StatusNotFound)
				default:
					fmt.Fprint(w, "secret of "+r.URL.Path) //nolint:gosec // no browser reads it
				}
			})
			s := openWith(t, ntlmEnvironment("CORP\\app\n", password+"\n"), ntlmSpec(server))

			if got := one(t, s, provider.Read{Key: "db"}); got.Err != nil || string(got.Value) != "secret of /db" {
				t.Fatalf("got %q, error %v", got.Value, got.Err)
			}

			if got := code(one(t, s, provider.Read{Key: "missing"}).Err); got != "NotFound NOT_FOUND" {
				t.Errorf("a secret that is missing: %s", got)
			}

			if n := server.logins.Load(); n != 1 {
				t.Errorf("two requests in a row logged in %d times", n)
			}

			_, err := s.Push(t.Context(), provider.Push{Key: "new", Value: []byte("pushed"), Owner: "us"})
			if err != nil || pushed.Load() != "pushed" {
				t.Errorf("the API got %v, error %v", pushed.Load(), err)
			}

			if _, err := s.Delete(t.Context(), provider.Deletion{Key: "new", Owner: "us"}); err != nil || !emptied.Load() {
				t.Errorf("a request without a body does not say that it has none (error %v)", err)
			}

			// None of this one's connections is logged in yet.
			crowded := openWith(t, ntlmEnvironment(`CORP\app`, password), ntlmSpec(server))

			var wait sync.WaitGroup

			for i := range 100 {
				wait.Go(func() {
					key := fmt.Sprintf("k%d", i)
					if got := crowded.Read(t.Context(), []provider.Read{{Key: key}})[0]; got.Err != nil || string(got.Value) != "secret of /"+key {
						t.Errorf("%s: got %q, error %v", key, got.Value, got.Err)
					}
				})
			}

			wait.Wait()

			if n, breaches := server.logins.Load(), server.breaches.Load(); n > 1+maxLanes || breaches > 0 {
				t.Errorf("100 requests at once logged in %d times, and broke into %d logins", n, breaches)
			}
		})
	}
}

// The causes of a failed login are distinguished, and no error contains the
// password.
func TestNTLMThatFails(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") }

	for _, c := range []struct {
		why, account, password string
		schemes                []string
		broken, torn           bool
		want                   codes.Code
		text                   string
	}{
		{why: "a wrong password", account: `CORP\app`, password: "wrong-" + password, schemes: []string{"NTLM"}, want: codes.Unauthenticated, text: "answers 401"},
		{why: "a user of another domain", account: `OTHER\app`, password: password, schemes: []string{"NTLM"}, want: codes.Unauthenticated, text: "answers 401"},
		{why: "an API that wants the password itself", account: `CORP\app`, password: password, schemes: []string{"Basic realm=corp"}, want: codes.Unauthenticated, text: "offers no NTLM"},
		{why: "a connection that ends in the midst is no refusal", account: `CORP\app`, password: password, schemes: []string{"NTLM"}, broken: true, want: codes.Unavailable},
		{why: "nor is one that ends before", account: `CORP\app`, password: password, schemes: []string{"NTLM"}, torn: true, want: codes.Unavailable, text: "stays open"},
	} {
		t.Run(c.why, func(t *testing.T) {
			server := newDomain(t, c.schemes, answer)
			server.broken.Store(c.broken)
			server.torn.Store(c.torn)

			err := one(t, openWith(t, ntlmEnvironment(c.account, c.password), ntlmSpec(server)), provider.Read{Key: "db"}).Err

			typed := provider.AsError(err)
			if err == nil || typed.Code != c.want || !strings.Contains(typed.Message, c.text) || strings.Contains(typed.Message, password) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNTLMConfigs(t *testing.T) {
	server := newDomain(t, nil, func(http.ResponseWriter, *http.Request) {})

	for _, c := range []struct {
		why, account, text string
		edit               func(*v2alpha1.WebhookSpec)
	}{
		{why: "no user", account: " \n", text: "spec.auth.ntlm.usernameSecret"},
		{why: "a colon", account: "a:b", text: "spec.auth.ntlm.usernameSecret"},
		{why: "a key that is not there", account: "app", text: `"nothing"`, edit: func(s *v2alpha1.WebhookSpec) { s.Auth.NTLM.PasswordSecret.Key = "nothing" }},
		{why: "a header that says it too", account: "app", text: "spec.push.headers[authorization]", edit: func(s *v2alpha1.WebhookSpec) {
			s.Push.Headers = map[string]v2alpha1.HeaderTemplate{"authorization": "Bearer x"}
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			spec := ntlmSpec(server)
			if c.edit != nil {
				c.edit(&spec)
			}

			_, err := loopback().New(t.Context(), ntlmEnvironment(c.account, password), &v2alpha1.Webhook{Spec: spec})
			if typed := provider.AsError(err); err == nil || typed.Code != codes.FailedPrecondition || !strings.Contains(typed.Message, c.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The timeout of a request does not include the wait for a connection.
func TestNTLMWaitsForItsTurn(t *testing.T) {
	server := newDomain(t, []string{"NTLM"}, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(150 * time.Millisecond)
		fmt.Fprint(w, "secret")
	})
	spec := ntlmSpec(server)
	spec.Timeout = &metav1.Duration{Duration: time.Second}
	s := openWith(t, ntlmEnvironment(`CORP\app`, password), spec)

	var wait sync.WaitGroup

	// Two seconds' work for eight connections.
	for i := range 100 {
		wait.Go(func() {
			if err := s.Read(t.Context(), []provider.Read{{Key: fmt.Sprintf("k%d", i)}})[0].Err; err != nil {
				t.Error(err)
			}
		})
	}

	wait.Wait()
}

// A proxy of plain HTTP would be logged in, and serve others by that.
func TestNTLMRefusesProxies(t *testing.T) {
	asked := func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy.example.com:3128") }

	for address, refused := range map[string]bool{"http://api.example.com/": true, "https://api.example.com/": false} {
		origin, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}

		err = unproxied(&http.Transport{Proxy: asked}, &endpoint{origin: origin, url: &text{field: "spec.url"}})
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "spec.url is plain HTTP") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A connection that the API has just closed costs another one, and no failure.
func TestNTLMOnAClosedConnection(t *testing.T) {
	server := newDomain(t, []string{"NTLM"}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") })
	s := openWith(t, ntlmEnvironment(`CORP\app`, password), ntlmSpec(server))

	for range 20 {
		if err := one(t, s, provider.Read{Key: "db"}).Err; err != nil {
			t.Fatal(err)
		}

		server.CloseClientConnections()
	}
}
