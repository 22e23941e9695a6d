package backend_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/backend"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// calls keeps what was counted.
type calls struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *calls) Called(operation, code string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.seen == nil {
		c.seen = map[string]int{}
	}

	c.seen[operation+" "+code]++

	if took <= 0 {
		c.seen["without time"]++
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}

	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	_, err = io.Copy(io.Discard, response.Body)

	return err
}

func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", 101))
		case "/refused":
			w.WriteHeader(http.StatusForbidden)
		case "/broken":
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()

	counted := &calls{}
	transport := backend.NewTransport(backend.Options{
		Base: http.DefaultTransport.(*http.Transport).Clone(), Calls: counted, MaxAnswer: 100,
		Operation: func(r *http.Request) string { return "Get" + r.URL.Path },
	})
	client := &http.Client{Transport: transport}

	defer client.CloseIdleConnections()

	for _, path := range []string{"/", "/", "/refused", "/broken"} {
		_ = get(t.Context(), client, server.URL+path)
	}

	err := get(t.Context(), client, server.URL+"/large")
	if typed, large := backend.TooLarge(err); !large || typed.Code != codes.ResourceExhausted {
		t.Errorf("an answer of 101 bytes where 100 are allowed: %v", err)
	}

	want := map[string]int{"Get/ 200": 2, "Get/refused 403": 1, "Get/broken error": 1, "Get/large 200": 1}
	if diff := cmp.Diff(want, counted.seen); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestTransportPaces(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()

	transport := backend.NewTransport(backend.Options{Base: http.DefaultTransport.(*http.Transport).Clone(), RequestsPerSecond: 20})
	client := &http.Client{Transport: transport}

	defer client.CloseIdleConnections()

	began := time.Now()

	for range 30 {
		if err := get(t.Context(), client, server.URL); err != nil {
			t.Fatal(err)
		}
	}

	// 20 at once, 10 more at 20 a second.
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("30 requests at 20 a second took %s", took)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	err := get(ctx, client, server.URL)
	if typed := provider.AsError(err); typed.Code != codes.ResourceExhausted || typed.RetryAfter <= 0 {
		t.Errorf("a request that cannot be sent in time: %v, want ResourceExhausted with a retry delay", err)
	}
}

func TestTransportRepeats(t *testing.T) {
	for _, test := range []struct {
		name, why, method string
		answers           []int
		after             string
		retries           int
		want, calls       int
	}{
		{"a gateway without a server", "it is back in a moment", http.MethodGet, []int{502, 503, 200}, "", 2, 200, 3},
		{"as often as configured", "", http.MethodGet, []int{503, 503, 503, 200}, "", 2, 503, 3},
		{"a write", "it may have been made", http.MethodPut, []int{503, 200}, "", 2, 503, 1},
		{"a refusal", "it will be refused again", http.MethodGet, []int{403, 200}, "", 2, 403, 1},
		{"a server that says when", "the operator comes back then", http.MethodGet, []int{503, 200}, "30", 2, 503, 1},
		{"no answer", "", http.MethodGet, []int{0, 200}, "", 1, 200, 2},
		{"none", "it is not configured", http.MethodGet, []int{503, 200}, "", 0, 503, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			calls := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls++

				if test.after != "" {
					w.Header().Set("Retry-After", test.after)
				}

				if test.answers[calls-1] == 0 {
					panic(http.ErrAbortHandler)
				}

				w.WriteHeader(test.answers[calls-1])
			}))
			defer server.Close()

			base, _ := http.DefaultTransport.(*http.Transport)
			client := &http.Client{Transport: backend.NewTransport(backend.Options{
				Base: base.Clone(), Retry: backend.RetryOf(provider.Retry{MaxRetries: &test.retries}, 7, time.Millisecond),
			})}

			defer client.CloseIdleConnections()

			request, err := http.NewRequestWithContext(t.Context(), test.method, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}

			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()

			if response.StatusCode != test.want || calls != test.calls {
				t.Errorf("%s: status %d after %d calls, want %d after %d", test.why, response.StatusCode, calls, test.want, test.calls)
			}
		})
	}
}

// The reason is worth more than the time-out that would follow.
func TestTransportTellsWhatItCannotRepeat(t *testing.T) {
	base, _ := http.DefaultTransport.(*http.Transport)
	client := &http.Client{Transport: backend.NewTransport(backend.Options{Base: base.Clone(), Retry: backend.Retry{Retries: 3, Interval: time.Minute}})}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()

	began := time.Now()
	if err := get(ctx, client, "http://127.0.0.1:1/"); err == nil || !strings.Contains(err.Error(), "refused") || time.Since(began) > 4*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}
