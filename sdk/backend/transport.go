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

// maxAnswer bounds an answer, in bytes, where Options says nothing.
const maxAnswer = 8 << 20

// Options of a Transport.
type Options struct {
	// Base performs the requests; it is needed.
	Base http.RoundTripper
	// Calls counts the requests; nil counts nothing.
	Calls provider.Calls
	// Operation names a request for Calls. There must be few names: no key
	// stands in one. Default the method.
	Operation func(*http.Request) string
	// RequestsPerSecond is how many requests a second may be made, with as many
	// at once; 0 means any number. A request that could not be made before its
	// context ends fails at once, with provider.Throttled.
	RequestsPerSecond int
	// Retry repeats requests that change nothing, GET and HEAD, where the backend
	// does not answer, or answers 502, 503 or 504 without saying when to come
	// back. It doubles the interval each time. The zero value repeats nothing;
	// RetryOf gives a store's settings.
	Retry Retry
	// MaxAnswer bounds an answer's body, in bytes; reading beyond it fails.
	// Default 8 MiB.
	MaxAnswer int64
}

// Retry says how often a request is repeated, and how long the first pause is.
type Retry struct {
	Retries  int
	Interval time.Duration
}

// RetryOf gives the retry settings of a store, or the defaults for what it
// leaves open.
func RetryOf(settings provider.Retry, retries int, interval time.Duration) Retry {
	if settings.MaxRetries != nil {
		retries = *settings.MaxRetries
	}

	if settings.Interval > 0 {
		interval = settings.Interval
	}

	return Retry{Retries: retries, Interval: interval}
}

// maxPause lies between two tries at most.
const maxPause = 10 * time.Second

// Transport performs HTTP requests to a backend. Safe for concurrent use.
type Transport struct {
	options Options
	limiter *rate.Limiter
}

var _ http.RoundTripper = (*Transport)(nil)

// NewTransport makes a transport.
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

// RoundTrip performs a request, and repeats it where that is asked for.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	repeatable := (request.Method == http.MethodGet || request.Method == http.MethodHead) && (request.Body == nil || request.Body == http.NoBody)
	pause := min(t.options.Retry.Interval, maxPause)

	for try := 0; ; try++ {
		response, err := t.once(request)
		if !repeatable || try >= t.options.Retry.Retries || !passing(request.Context(), response, err) {
			return response, err
		}

		// What ends before the next try is told as it is.
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

// maxDrained bounds what is read of an answer that nobody wants.
const maxDrained = 64 << 10

// passing tells whether another try may fare better.
func passing(ctx context.Context, response *http.Response, err error) bool {
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

	// Not for what is no body any more, such as that of an upgraded connection.
	if response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = http.MaxBytesReader(nil, response.Body, t.options.MaxAnswer)
	}

	return response, nil
}

// CloseIdleConnections of the base.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// pace waits for the request's turn.
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

// TooLarge tells whether reading an answer failed for its size, and gives the
// error to answer.
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
