package store

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/go-ntlmssp"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/webhook/api/v2alpha1"
)

const (
	// maxLanes bounds the connections of a store that logs in by NTLM.
	maxLanes = 8
	// maxDrained bounds what is read of an answer that nobody wants, in bytes.
	maxDrained = 64 << 10
)

// ntlm performs requests as a user. NTLM logs in a connection, by three requests
// in a row, and whatever else is sent through it is the user's ([MS-NTHT]): each
// request therefore has a lane of its own, which is one connection, until its
// answer is read.
type ntlm struct {
	username, password string
	transport          func() *http.Transport

	// free has a place for each lane that nobody uses.
	free chan struct{}
	mu   sync.Mutex
	// idle lanes, the one used last at the end: it is logged in most likely.
	idle []*http.Transport
}

var _ http.RoundTripper = (*ntlm)(nil)

// ntlm makes what performs the store's requests as the user of the config.
func (s *Store) ntlm(ctx context.Context, env provider.Environment, config *v2alpha1.WebhookNTLM, transport func() *http.Transport) (*ntlm, error) {
	for _, endpoint := range s.all() {
		if header, both := endpoint.headers["Authorization"]; both {
			return nil, provider.InvalidConfig("%s: the header is there, and spec.auth.ntlm makes it: leave one out", header.field)
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

	n := &ntlm{username: strings.TrimSpace(string(username)), password: strings.TrimRight(string(password), "\r\n"), transport: transport, free: make(chan struct{}, maxLanes)}
	for range maxLanes {
		n.free <- struct{}{}
	}

	switch ref := config.UsernameSecret; {
	case n.username == "":
		return nil, provider.InvalidConfig("spec.auth.ntlm.usernameSecret: key %q of Secret %q is empty", ref.Key, ref.Name)
	case strings.Contains(n.username, ":"):
		return nil, provider.InvalidConfig("spec.auth.ntlm.usernameSecret: key %q of Secret %q holds a colon, which no user's name can", ref.Key, ref.Name)
	}

	return n, nil
}

// RoundTrip performs a request, and logs its connection in where the API asks
// for that.
func (n *ntlm) RoundTrip(request *http.Request) (*http.Response, error) {
	select {
	case <-n.free:
	case <-request.Context().Done():
		if request.Body != nil {
			_ = request.Body.Close()
		}

		return nil, request.Context().Err()
	}

	lane := &lane{Transport: n.take()}
	leave := sync.OnceFunc(func() { n.leave(lane.Transport) })

	// The library takes the user from there, and does not send it.
	request = request.Clone(request.Context())
	request.SetBasicAuth(n.username, n.password)

	response, err := ntlmssp.Negotiator{RoundTripper: lane}.RoundTrip(request)
	if err != nil {
		leave()

		return nil, err
	}

	if response.StatusCode == http.StatusUnauthorized {
		if err := lane.verdict(); err != nil {
			_ = response.Body.Close()

			leave()

			return nil, err
		}
	}

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
	// HTTP/2 sends the requests of many through one connection.
	transport.ForceAttemptHTTP2 = false
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = 1, 1

	return transport
}

func (n *ntlm) leave(transport *http.Transport) {
	n.mu.Lock()
	n.idle = append(n.idle, transport)
	n.mu.Unlock()

	n.free <- struct{}{}
}

// CloseIdleConnections of the lanes that nobody uses.
func (n *ntlm) CloseIdleConnections() {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, transport := range n.idle {
		transport.CloseIdleConnections()
	}
}

// lane is the way of one request, with the requests that log it in.
type lane struct {
	*http.Transport

	// sent counts the requests; err is why the last one has no answer.
	sent int
	err  error
}

// RoundTrip leaves nothing of a 401 on the connection: the library goes on with
// the login before it has read that.
func (l *lane) RoundTrip(request *http.Request) (response *http.Response, err error) {
	l.sent++
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

// verdict on a 401, which is also what the library answers where the login
// broke off.
func (l *lane) verdict() error {
	switch {
	case l.err != nil:
		return l.err
	case l.sent == 1:
		return provider.Unauthenticated("the API answers 401 and offers no NTLM, by which spec.auth.ntlm would log in")
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
