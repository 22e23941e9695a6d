package session

import (
	"context"
	"math/rand/v2"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/aws/api/v2alpha1"
)

const (
	defaultRetries  = 2
	defaultInterval = 500 * time.Millisecond
	// maxInterval bounds the time between two attempts, unless the store sets a
	// longer one.
	maxInterval = 20 * time.Second
	// attemptTimeout bounds one request, callTimeout a call with its retries.
	attemptTimeout = 20 * time.Second
	callTimeout    = 60 * time.Second
	// idleConnections are kept per host: a batch reads several secrets at once.
	idleConnections = 16
)

// region matches texts that may be part of a host name.
var region = regexp.MustCompile(`^[a-z]{2,5}(-[a-z]+)+-[0-9]+$`)

// Session is one config's access to AWS. Safe for concurrent use.
type Session struct {
	config    aws.Config
	transport *http.Transport
	sts       *sts.Client

	mu sync.Mutex
	// hidden are the credentials that were used last, by their source.
	hidden map[string]aws.Credentials
}

// New returns the session of a config object. References to credentials are
// resolved here; a role is assumed when the first call needs it.
func New(ctx context.Context, env provider.Environment, object metav1.Object, access *v2alpha1.AWSAccess) (*Session, error) {
	switch {
	case access.Region == "":
		return nil, provider.InvalidConfig("spec.region is empty: name the region, such as eu-central-1")
	case !region.MatchString(access.Region):
		return nil, provider.InvalidConfig("spec.region: %q is no region of AWS, such as eu-central-1", access.Region)
	}

	s := &Session{hidden: map[string]aws.Credentials{}}

	base, options, err := s.identity(ctx, env, object, &access.Auth)
	if err != nil {
		return nil, err
	}

	options = append(options, config.WithRegion(access.Region), config.WithLogger(logging.Nop{}))

	// The environment has the endpoint of AWS (AWS_ENDPOINT_URL), the authorities
	// and the proxies. A config has none of them: its author could send the
	// provider's identity anywhere.
	if s.config, err = config.LoadDefaultConfig(ctx, options...); err != nil {
		return nil, provider.InvalidConfig("cannot prepare the client of AWS: %v", err)
	}

	s.connect(access.RequestsPerSecond)

	s.config.Retryer = func() aws.Retryer { return retryer(env.Retry) }
	s.config.APIOptions = append(s.config.APIOptions, deadline, counted(env.Calls))

	s.login(env, object, access, base)
	s.sts = sts.NewFromConfig(s.config)

	return s, nil
}

// Config returns the configuration of clients of AWS's services.
func (s *Session) Config() aws.Config { return s.config }

// Close closes the session's connections. Calls must be over.
func (s *Session) Close() { s.transport.CloseIdleConnections() }

// connect replaces the SDK's HTTP client with one of the session's own, which has
// the same settings, a rate limit and bounded responses.
func (s *Session) connect(requestsPerSecond int) {
	client, ok := s.config.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}

	s.transport = client.GetTransport()
	s.transport.MaxIdleConnsPerHost = idleConnections

	s.config.HTTPClient = &http.Client{
		Timeout:   attemptTimeout,
		Transport: detached{backend.NewTransport(backend.Options{Base: s.transport, RequestsPerSecond: requestsPerSecond})},
		// A redirect would send the signature to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// retryer is the SDK's own, with the number and the intervals of the store.
func retryer(settings provider.Retry) aws.Retryer {
	retries, interval := defaultRetries, defaultInterval
	if settings.MaxRetries != nil {
		retries = *settings.MaxRetries
	}

	if settings.Interval > 0 {
		interval = settings.Interval
	}

	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = retries + 1
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) {
			delay := min(interval<<min(max(attempt-1, 0), 10), max(interval, maxInterval))

			// Jitter, because several calls are throttled together.
			return delay - delay/4 + rand.N(delay/2+1), nil //nolint:gosec // to spread load, not to guard
		})
		// Errors of this provider are not retried: its own rate limit, and a
		// failed login, which was retried already.
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(own)}, o.Retryables...)
	})
}
