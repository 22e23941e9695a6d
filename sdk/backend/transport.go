package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// maxAnswer is the default of Options.MaxAnswer.
const maxAnswer = 8 << 20

// Options of a Transport.
type Options struct {
	// Base performs the requests. Required.
	Base http.RoundTripper
	// Calls counts the requests; nil counts nothing.
	Calls provider.Calls
	// Operation returns the name of a request for Calls. There must be few names, so
	// they contain no key. Default is the method.
	Operation func(*http.Request) string
	// RequestsPerSecond limits the rate of requests, with bursts of the same number;
	// 0 means no limit. A request whose deadline is before its turn fails at once,
	// with provider.Throttled.
	RequestsPerSecond int
	// Retry repeats GET and HEAD requests when there is no response, or one of status
	// 502, 503 or 504 without Retry-After. The interval doubles each time. The zero
	// value repeats nothing; RetryOf returns a store's settings.
	Retry Retry
	// MaxAnswer bounds the body of a response, in bytes; reading beyond it fails.
	// Default is 8 MiB.
	MaxAnswer int64
}

// Retry settings of a Transport.
type Retry struct {
	// Retries is how often a request is repeated at most.
	Retries int
	// Interval before the first repetition.
	Interval time.Duration
}

// RetryOf returns the retry settings of a store, with the given defaults for those
// that are not set.
func RetryOf(settings provider.Retry, retries int, interval time.Duration) Retry {
	if settings.MaxRetries != nil {
		retries = *settings.MaxRetries
	}

	if settings.Interval > 0 {
		interval = settings.Interval
	}

	return Retry{Retries: retries, Interval: interval}
}

// maxPause bounds the interval between two attempts.
const maxPause = 10 * time.Second

// Transport performs HTTP requests to a backend. Safe for concurrent use.
type Transport struct {
	options Options
	limiter *rate.Limiter
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport returns a transport.
func NewTransport(options Options) *Transport {
	if options.Operation == nil {
		options.Operation = func(r *http.Request) string { return r.Method }
	}

	if options.MaxAnswer == 0 {
		options.MaxAnswer = maxAnswer
	}

	t := &Transport{options: options}
	if options.RequestsPerSecond > 0 {
		t.limiter = rate.NewLimiter(rate.Limit(options.RequestsPerSecond), options.RequestsPerSecond)
	}

	return t
}

// RoundTrip performs a request, and repeats it as Options.Retry says.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	repeatable := (request.Method == http.MethodGet || request.Method == http.MethodHead) && (request.Body == nil || request.Body == http.NoBody)
	pause := min(t.options.Retry.Interval, maxPause)

	for try := 0; ; try++ {
		response, err := t.once(request)
		if !repeatable || try >= t.options.Retry.Retries || !transient(request.Context(), response, err) {
			return response, err
		}

		// There is no time for another attempt.
		if deadline, ok := request.Context().Deadline(); ok && time.Until(deadline) < pause {
			return response, err
		}

		if response != nil {
			// Read to its end, so that the connection can be used again.
			_, _ = io.CopyN(io.Discard, response.Body, maxDrained)
			_ = response.Body.Close()
		}

		timer := time.NewTimer(pause)

		select {
		case <-timer.C:
		case <-request.Context().Done():
			timer.Stop()

			return nil, request.Context().Err()
		}

		pause = min(2*pause, maxPause)
	}
}

// maxDrained bounds how much is read of a response that is discarded.
const maxDrained = 64 << 10

// transient reports whether another attempt may succeed.
func transient(ctx context.Context, response *http.Response, err error) bool {
	if err != nil {
		var typed *provider.Error // the store's own limit

		return ctx.Err() == nil && !errors.As(err, &typed)
	}

	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return response.Header.Get("Retry-After") == ""
	default:
		return false
	}
}

func (t *Transport) once(request *http.Request) (*http.Response, error) {
	if err := t.pace(request.Context()); err != nil {
		return nil, err
	}

	began := time.Now()
	response, err := t.options.Base.RoundTrip(request)

	if t.options.Calls != nil {
		code := "error"
		if err == nil {
			code = strconv.Itoa(response.StatusCode)
		}

		t.options.Calls.Called(t.options.Operation(request), code, time.Since(began))
	}

	if err != nil {
		return nil, err
	}

	// The body of an upgraded connection is the connection.
	if response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = http.MaxBytesReader(nil, response.Body, t.options.MaxAnswer)
	}

	return response, nil
}

// CloseIdleConnections closes the idle connections of the base.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// pace waits until the rate limit allows a request.
func (t *Transport) pace(ctx context.Context) error {
	if t.limiter == nil {
		return nil
	}

	turn := t.limiter.Reserve()
	delay := turn.Delay()

	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
		turn.Cancel()

		return provider.Throttled(delay, "the store's own limit of %d requests a second is reached", t.options.RequestsPerSecond)
	}

	if delay == 0 {
		return nil
	}

	timer := time.NewTimer(delay)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		turn.Cancel()

		return ctx.Err()
	}
}

// TooLarge reports whether reading a response failed because of its size, and
// returns the error for the caller.
func TooLarge(err error) (*provider.Error, bool) {
	var large *http.MaxBytesError
	if !errors.As(err, &large) {
		return nil, false
	}

	return &provider.Error{
		Code: codes.ResourceExhausted, Reason: pb.ReasonTooLarge,
		Message: fmt.Sprintf("the backend's answer has more than %d bytes", large.Limit),
	}, true
}
