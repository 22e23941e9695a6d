package store

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"github.com/Azure/go-ntlmssp"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

const (
	// maxLanes bounds the connections of a store that uses NTLM.
	maxLanes = 8
	// maxDrained bounds how much is read of a response that is discarded, in
	// bytes.
	maxDrained = 64 << 10
)

// errTorn means that a login was not completed on one connection.
var errTorn = errors.New("the connection ended in the midst of the login by NTLM, which needs one that stays open")

// ntlm performs requests as a user. NTLM authenticates a connection, with three
// consecutive requests, and later requests on it are the user's ([MS-NTHT]): each
// request therefore has a lane of its own, which is one connection, until its
// response is closed.
type ntlm struct {
	username, password string
	transport          func() *http.Transport

	mu sync.Mutex
	// idle lanes, the one used last at the end: it is logged in most likely.
	idle []*http.Transport
}

var _ http.RoundTripper = (*ntlm)(nil)

// ntlm returns the transport that performs the store's requests as the user of
// the config.
func (s *Store) ntlm(ctx context.Context, env provider.Environment, config *v2alpha1.WebhookNTLM, transport func() *http.Transport) (*ntlm, error) {
	for _, endpoint := range s.all() {
		if header, both := endpoint.headers["Authorization"]; both {
			return nil, provider.InvalidConfig("%s: the header is there, and spec.auth.ntlm makes it: leave one out", header.field)
		}

		if err := unproxied(transport(), endpoint); err != nil {
			return nil, err
		}
	}

	username, err := env.References.SecretKey(ctx, config.UsernameSecret)
	if err != nil {
		return nil, err
	}

	password, err := env.References.SecretKey(ctx, config.PasswordSecret)
	if err != nil {
		return nil, err
	}

	n := &ntlm{username: strings.TrimSpace(string(username)), password: strings.TrimRight(string(password), "\r\n"), transport: transport}

	switch ref := config.UsernameSecret; {
	case n.username == "":
		return nil, provider.InvalidConfig("spec.auth.ntlm.usernameSecret: key %q of Secret %q is empty", ref.Key, ref.Name)
	case strings.Contains(n.username, ":"):
		return nil, provider.InvalidConfig("spec.auth.ntlm.usernameSecret: key %q of Secret %q holds a colon, which no user's name can", ref.Key, ref.Name)
	}

	return n, nil
}

// unproxied refuses a proxy for plain HTTP: its connections would be
// authenticated, with the requests of its other clients.
func unproxied(transport *http.Transport, endpoint *endpoint) error {
	if endpoint.origin.Scheme != "http" || transport.Proxy == nil {
		return nil
	}

	if proxy, err := transport.Proxy(&http.Request{URL: endpoint.origin}); err != nil || proxy != nil {
		return provider.InvalidConfig("%s is plain HTTP and goes through the provider's proxy, which spec.auth.ntlm would log in for others, too: use https", endpoint.url.field)
	}

	return nil
}

// RoundTrip performs a request, and authenticates its connection if the API
// requires that.
func (n *ntlm) RoundTrip(request *http.Request) (*http.Response, error) {
	lane := &lane{Transport: n.take()}
	leave := sync.OnceFunc(func() { n.leave(lane.Transport) })
	held := false

	defer func() {
		if !held {
			leave()
		}
	}()

	request = request.Clone(request.Context())
	if request.Body == http.NoBody {
		request.Body = nil
	}

	// The library takes the user from there, and does not send it.
	request.SetBasicAuth(n.username, n.password)

	response, err := ntlmssp.Negotiator{RoundTripper: lane}.RoundTrip(request)
	if err != nil {
		return nil, err
	}

	if response.StatusCode == http.StatusUnauthorized {
		if err := lane.verdict(); err != nil {
			_ = response.Body.Close()

			return nil, err
		}
	}

	held = true
	response.Body = &heldBody{ReadCloser: response.Body, leave: leave}

	return response, nil
}

func (n *ntlm) take() *http.Transport {
	n.mu.Lock()
	defer n.mu.Unlock()

	if last := len(n.idle) - 1; last >= 0 {
		transport := n.idle[last]
		n.idle = n.idle[:last]

		return transport
	}

	transport := n.transport()
	// HTTP/2 multiplexes requests on one connection.
	transport.ForceAttemptHTTP2 = false
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = 1, 1

	return transport
}

func (n *ntlm) leave(transport *http.Transport) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.idle = append(n.idle, transport)
}

// CloseIdleConnections closes the connections of idle transports.
func (n *ntlm) CloseIdleConnections() {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, transport := range n.idle {
		transport.CloseIdleConnections()
	}
}

// lane performs one request at a time, with the requests that authenticate its
// connection.
type lane struct {
	*http.Transport

	// connections that the requests had, one each; err is why the last one has no
	// answer.
	connections []net.Conn
	err         error
}

// RoundTrip reads the body of a 401 from the connection: the library continues the
// login without reading it.
func (l *lane) RoundTrip(request *http.Request) (response *http.Response, err error) {
	at := len(l.connections)
	l.connections = append(l.connections, nil)
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { l.connections[at] = got.Conn },
	}))

	// The library has a body of its own even for none.
	if request.ContentLength == 0 {
		request.Body = http.NoBody
	}

	if response, l.err = l.Transport.RoundTrip(request); l.err != nil {
		return nil, l.err
	}

	if response.StatusCode == http.StatusUnauthorized {
		_, _ = io.CopyN(io.Discard, response.Body, maxDrained)
		_ = response.Body.Close()
		response.Body = http.NoBody
	}

	return response, nil
}

// verdict returns the error of a 401, which the library also returns for an
// incomplete login.
func (l *lane) verdict() error {
	switch sent := len(l.connections); {
	case l.err != nil:
		return l.err
	case sent == 1:
		return provider.Unauthenticated("the API answers 401 and offers no NTLM, by which spec.auth.ntlm would log in")
	case sent == 3 && l.connections[1] != l.connections[2]:
		return errTorn
	default:
		return nil
	}
}

// heldBody leaves the lane when it is closed.
type heldBody struct {
	io.ReadCloser

	leave func()
}

// Close closes the body.
func (b *heldBody) Close() error {
	err := b.ReadCloser.Close()
	b.leave()

	return err
}
