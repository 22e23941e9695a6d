package providerclient

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/external-secrets/eso/core/internal/identity/mtls"
	"github.com/external-secrets/eso/core/internal/identity/token"
)

const (
	defaultMaxConcurrent = 64
	// idle is how long a connection that only a store's own choice asks for is
	// kept unused.
	idle = 10 * time.Minute
	// maxAnswerBytes bounds one answer: what a provider may send, and a little
	// for the envelope.
	maxAnswerBytes = 4<<20 + 64<<10
)

// serviceConfig repeats what has no effect when a connection breaks under it,
// and spreads calls over a provider's replicas.
const serviceConfig = `{
  "loadBalancingConfig": [{"round_robin": {}}],
  "methodConfig": [{
    "name": [
      {"service": "externalsecrets.provider.v2alpha1.ProviderInfo"},
      {"service": "externalsecrets.provider.v2alpha1.SecretStore", "method": "GetSecrets"},
      {"service": "externalsecrets.provider.v2alpha1.SecretStore", "method": "Validate"},
      {"service": "externalsecrets.provider.v2alpha1.SecretStore", "method": "SecretExists"}
    ],
    "retryPolicy": {
      "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 3,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
}`

// Called is called after each call: the provider's name, or its address where it has
// none, the RPC, the gRPC code, and how long it took.
type Called func(provider, method, code string, took time.Duration)

// Tokens gets the tokens that calls carry. *token.Source is one.
type Tokens interface {
	Token(ctx context.Context, who token.Identity) (string, error)
	Forget(who token.Identity, refused string)
}

// Options of a Pool.
type Options struct {
	// Credentials of the operator and of providers; required.
	Credentials mtls.Credentials
	// Tokens that calls carry; nil where none ever does.
	Tokens Tokens
	// UserAgent of the operator.
	UserAgent string
	// Called is called after each call; may be nil.
	Called Called
	// Dial connects to providers; nil dials the network. A connection that it
	// returns is authenticated as any other: by TLS with the certificates of both
	// sides, also in memory; one for a socket's address only where it is a
	// *net.UnixConn, whose peer the kernel identifies.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Pool keeps connections to providers.
type Pool struct {
	options Options

	mu     sync.Mutex
	conns  map[Endpoint]*connection
	bounds map[served]*bounds
	closed bool
}

// connection is one pooled connection set.
type connection struct {
	grpc *grpc.ClientConn
	used time.Time
	// watching counts the watches, which last.
	watching atomic.Int32

	*bounds
}

// watch counts a watch until it is released.
func (c *connection) watch() (release func()) {
	c.watching.Add(1)

	return func() { c.watching.Add(-1) }
}

// bounds of a provider's use, by all connections to it.
type bounds struct {
	inUse   chan struct{}
	limiter *rate.Limiter

	// maxBatch that the provider named last; 0 means none.
	maxBatch atomic.Uint32
}

// NewPool returns an empty pool.
func NewPool(options Options) *Pool {
	if options.Called == nil {
		options.Called = func(string, string, string, time.Duration) {}
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	return &Pool{options: options, conns: map[Endpoint]*connection{}, bounds: map[served]*bounds{}}
}

// Client returns a client for a provider, whose calls carry a token of the given
// identity, if any. Nothing is dialled before its first call.
func (p *Pool) Client(endpoint Endpoint, who token.Identity) (*Client, error) {
	if !who.None() && endpoint.Address.Socket() {
		return nil, fmt.Errorf("cannot call %s: tokens travel over TLS only", endpoint.Address)
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed {
		return nil, fmt.Errorf("cannot call %s: the operator is stopping", endpoint.Address)
	}

	conn, ok := p.conns[endpoint]
	if !ok {
		var err error
		if conn, err = p.dial(endpoint); err != nil {
			return nil, err
		}

		p.conns[endpoint] = conn
	}

	conn.used = p.options.Now()

	return &Client{endpoint: endpoint, conn: conn, who: who, tokens: p.options.Tokens, called: p.options.Called}, nil
}

func (p *Pool) dial(endpoint Endpoint) (*connection, error) {
	options := []grpc.DialOption{
		grpc.WithUserAgent(p.options.UserAgent),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(),
		// Secrets never go through a proxy that the environment names.
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestPause(endpoint)},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		grpc.WithTransportCredentials(mtls.Transport(p.options.Credentials, endpoint.Trust)),
	}

	hostPort := net.JoinHostPort(endpoint.Address.Host, strconv.Itoa(int(endpoint.Address.Port)))
	target := "dns:///" + hostPort

	if endpoint.Address.Socket() {
		target = "unix://" + endpoint.Address.Path
	}

	if p.options.Dial != nil {
		given := hostPort
		if endpoint.Address.Socket() {
			given = target
			options = append(options, grpc.WithAuthority("localhost")) // as for any unix socket
		}

		// No name is resolved: only Dial interprets an address.
		target = "passthrough:///" + given

		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return p.options.Dial(ctx, given)
		}))
	}

	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot use address %s: %w", endpoint.Address, err)
	}

	return &connection{grpc: conn, bounds: p.boundsOf(endpoint)}, nil
}

// longestPause between two tries to connect. With what a store has chosen there
// may be as many connections as stores, and they fail by the tenant's mistake.
func longestPause(endpoint Endpoint) time.Duration {
	if endpoint.Trust.Certificate.Name != "" || endpoint.Trust.OwnDomain {
		return 30 * time.Second
	}

	return 5 * time.Second
}

// boundsOf returns the bounds that all connections to a provider share.
func (p *Pool) boundsOf(endpoint Endpoint) *bounds {
	if b, ok := p.bounds[endpoint.served()]; ok {
		return b
	}

	concurrent := endpoint.MaxConcurrent
	if concurrent == 0 {
		concurrent = defaultMaxConcurrent
	}

	b := &bounds{inUse: make(chan struct{}, concurrent)}
	if endpoint.PerSecond > 0 {
		b.limiter = rate.NewLimiter(rate.Limit(endpoint.PerSecond), endpoint.PerSecond)
	}

	p.bounds[endpoint.served()] = b

	return b
}

// Retain closes the connections to every provider but those given, and those by
// a store's own choice of trust that have not been used for a while. Calls in
// flight on them fail and are repeated by their callers.
func (p *Pool) Retain(endpoints []Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()

	now, bounded := p.options.Now(), map[served]bool{}

	for endpoint, conn := range p.conns {
		if slices.ContainsFunc(endpoints, func(kept Endpoint) bool {
			return kept == endpoint || kept.serves(endpoint) && (now.Sub(conn.used) < idle || conn.watching.Load() > 0)
		}) {
			bounded[endpoint.served()] = true

			continue
		}

		_ = conn.grpc.Close()

		delete(p.conns, endpoint)
	}

	for key := range p.bounds {
		if !bounded[key] {
			delete(p.bounds, key)
		}
	}
}

// Close closes every connection.
func (p *Pool) Close() {
	p.Retain(nil)

	p.mu.Lock()
	defer p.mu.Unlock()

	p.closed = true
}

// acquire waits until the provider may be called.
func (c *bounds) acquire(ctx context.Context) (release func(), err error) {
	if c.limiter != nil {
		if err := c.limiter.Wait(ctx); err != nil {
			return nil, fmt.Errorf("the provider's limit of requests per second (spec.limits of its SecretProvider) leaves no room in time: %w", err)
		}
	}

	select {
	case c.inUse <- struct{}{}:
		return func() { <-c.inUse }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the provider's limit of concurrent requests (spec.limits of its SecretProvider) leaves no room in time: %w", ctx.Err())
	}
}
