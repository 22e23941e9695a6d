package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	defaultTimeout  = 10 * time.Second
	defaultRetries  = 2
	defaultInterval = time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 4 << 20
	// maxRetryAfter bounds the Retry-After of an API.
	maxRetryAfter = time.Hour
)

// client performs calls.
type client struct {
	http     *http.Client
	timeout  time.Duration
	retries  int
	interval time.Duration
	notFound []int
	now      func() time.Time
	// turns bounds the concurrent calls by its capacity; nil means no bound.
	turns chan struct{}
}

// answer of a call: its status is one of success, 304, or one by which the API
// says that there is no such secret.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// operation of a request, by its context.
type operationKey struct{}

func operationOf(request *http.Request) string {
	operation, _ := request.Context().Value(operationKey{}).(string)

	return operation
}

// do performs a call, and repeats it if it is idempotent.
func (c *client) do(ctx context.Context, call *call) (*answer, error) {
	retries := c.retries
	if call.operation == operationPush && call.method != http.MethodPut || call.operation == operationDelete && call.method != http.MethodDelete {
		retries = 0
	}

	var (
		got *answer
		err error
	)

	backoff := wait.Backoff{Duration: c.interval, Factor: 2, Steps: retries + 1}
	ended := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		got, err = c.once(ctx, call)

		var again *passingError

		return !errors.As(err, &again), nil
	})

	if got == nil && err == nil {
		return nil, ended
	}

	return got, err
}

// passingError is a transient failure, which is repeated. A response with
// Retry-After is not one: the operator repeats the call at that time.
type passingError struct{ of *provider.Error }

func (e *passingError) Error() string { return e.of.Error() }

func (e *passingError) Unwrap() error { return e.of }

func (c *client) once(ctx context.Context, call *call) (*answer, error) {
	// The time that the API has begins afterwards.
	if c.turns != nil {
		select {
		case c.turns <- struct{}{}:
			defer func() { <-c.turns }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	attempt, cancel := context.WithTimeout(context.WithValue(ctx, operationKey{}, call.operation), c.timeout)
	defer cancel()

	var body io.Reader = http.NoBody
	if call.body != "" {
		body = strings.NewReader(call.body)
	}

	request, err := http.NewRequestWithContext(attempt, call.method, call.url.String(), body)
	if err != nil {
		return nil, provider.InvalidRequest("%s: the request cannot be made", call.shown)
	}

	request.Header = call.header

	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.failure(ctx, call, err)
	}
	defer response.Body.Close()

	if err := c.refusal(call, response); err != nil {
		// Read to its end, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, response.Body, maxDrained)

		return nil, err
	}

	content, err := io.ReadAll(response.Body)
	if large, ok := backend.TooLarge(err); ok {
		large.Message = call.shown + ": " + large.Message

		return nil, large
	}

	if err != nil {
		return nil, c.failure(ctx, call, err)
	}

	return &answer{status: response.StatusCode, header: response.Header, body: content}, nil
}

// absent reports whether a status means that the secret does not exist.
func (c *client) absent(status int) bool {
	return slices.Contains(c.notFound, status)
}

// refusal returns the error of a status; nil for success. The response itself is
// not quoted: it may contain a secret.
func (c *client) refusal(call *call, response *http.Response) error {
	status := response.StatusCode
	answers := fmt.Sprintf("%s answers %d", call.shown, status)
	after := c.retryAfter(response.Header)
	writes := call.operation == operationPush || call.operation == operationDelete

	switch {
	case c.absent(status):
		return nil
	case status == http.StatusPartialContent:
		return provider.Unavailable("%s: a partial answer", answers)
	case status >= 200 && status < 300, status == http.StatusNotModified:
		return nil
	case status >= 300 && status < 400:
		return item(provider.Unavailable("%s: a redirect, which is not followed: put the URL that it leads to into the config", answers))
	case status == http.StatusUnauthorized, status == http.StatusProxyAuthRequired:
		return provider.Unauthenticated("%s: it refuses the credentials", answers)
	case status == http.StatusForbidden:
		return provider.AccessDenied("%s: it refuses this secret", answers)
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return provider.Unsupported("%s: it does not do this", answers)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return &passingError{item(provider.Unavailable("%s: it asks for the request once more", answers))}
	case writes && (status == http.StatusConflict || status == http.StatusPreconditionFailed):
		return provider.NotOwned("%s: the secret is not this owner's, or was changed in between", answers)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && after > 0:
		return provider.Throttled(after, "%s: the API throttles the requests", answers)
	case status >= 502 && status <= 504:
		return &passingError{provider.Unavailable("%s", answers)}
	case status >= 500:
		return &passingError{item(provider.Unavailable("%s", answers))}
	default:
		return provider.InvalidRequest("%s: it does not understand the request", answers)
	}
}

// item sets the scope of an error to the one secret: other secrets need not fail.
func item(e *provider.Error) *provider.Error {
	e.StoreScope = false

	return e
}

// retryAfter returns the time after which the API may be called again; 0 if the
// response has none.
func (c *client) retryAfter(header http.Header) time.Duration {
	given := header.Get("Retry-After")

	if seconds, err := strconv.ParseUint(given, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}

	if at, err := http.ParseTime(given); err == nil {
		return min(max(at.Sub(c.now()), time.Second), maxRetryAfter)
	}

	return 0
}

// failure returns the error of a request without a response. The library's error
// contains the URL, and the part of a response that it could not parse.
func (c *client) failure(ctx context.Context, call *call, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}

	if typed, ok := errors.AsType[*provider.Error](err); ok {
		return typed
	}

	if refused, ok := errors.AsType[*addressError](err); ok {
		return refused.invalid(call.shown)
	}

	if errors.Is(err, errTorn) {
		return &passingError{provider.Unavailable("%s: %v", call.shown, errTorn)}
	}

	reason, lasting := backend.Reason(err, backend.Fields{
		CA: "spec.caBundle or spec.caProvider", Late: fmt.Sprintf("it does not answer within %s (spec.timeout)", c.timeout),
	})
	unavailable := provider.Unavailable("%s: %s", call.shown, reason)

	if lasting {
		return unavailable
	}

	return &passingError{unavailable}
}
