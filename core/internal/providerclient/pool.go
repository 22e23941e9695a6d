package providerclient

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	defaultMaxConcurrent = 64
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

// Called is told of each call: the provider's name, or its address where it has
// none, the RPC, the gRPC code, and how long it took.
type Called func(provider, method, code string, took time.Duration)

// Pool keeps connections to providers.
type Pool struct {
	credentials Credentials
	userAgent   string
	called      Called

	mu     sync.Mutex
	conns  map[Endpoint]*connection
	closed bool
}

// connection is one pooled connection set and the bounds of its use.
type connection struct {
	grpc    *grpc.ClientConn
	inUse   chan struct{}
	limiter *rate.Limiter

	// maxBatch that the provider named last; 0 means none.
	maxBatch atomic.Uint32
}

// NewPool makes an empty pool. called may be nil.
func NewPool(credentials Credentials, userAgent string, called Called) *Pool {
	if called == nil {
		called = func(string, string, string, time.Duration) {}
	}

	return &Pool{credentials: credentials, userAgent: userAgent, called: called, conns: map[Endpoint]*connection{}}
}

// Client gives a client for a provider. Nothing is dialled before its first
// call.
func (p *Pool) Client(endpoint Endpoint) (*Client, error) {
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

	return &Client{endpoint: endpoint, conn: conn, called: p.called}, nil
}

func (p *Pool) dial(endpoint Endpoint) (*connection, error) {
	options := []grpc.DialOption{
		grpc.WithUserAgent(p.userAgent),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(),
		// Secrets never go through a proxy that the environment names.
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
	}

	var target string

	if endpoint.Address.Socket() {
		target = "unix://" + endpoint.Address.Path
		options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	} else {
		target = "dns:///" + net.JoinHostPort(endpoint.Address.Host, strconv.Itoa(int(endpoint.Address.Port)))
		options = append(options, grpc.WithTransportCredentials(&transport{source: p.credentials, endpoint: endpoint}))
	}

	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot use address %s: %w", endpoint.Address, err)
	}

	concurrent := endpoint.MaxConcurrent
	if concurrent == 0 {
		concurrent = defaultMaxConcurrent
	}

	c := &connection{grpc: conn, inUse: make(chan struct{}, concurrent)}
	if endpoint.PerSecond > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(endpoint.PerSecond), endpoint.PerSecond)
	}

	return c, nil
}

// Retain closes the connections to every endpoint but those given. Calls in
// flight on them fail and are repeated by their callers.
func (p *Pool) Retain(endpoints map[Endpoint]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for endpoint, conn := range p.conns {
		if !endpoints[endpoint] {
			_ = conn.grpc.Close()

			delete(p.conns, endpoint)
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

// acquire waits until the provider may be asked.
func (c *connection) acquire(ctx context.Context) (release func(), err error) {
	if c.limiter != nil {
		if err := c.limiter.Wait(ctx); err != nil {
			return nil, fmt.Errorf("the provider's limit of requests per second leaves no room in time: %w", err)
		}
	}

	select {
	case c.inUse <- struct{}{}:
		return func() { <-c.inUse }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the provider's limit of concurrent requests leaves no room in time: %w", ctx.Err())
	}
}
