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
		t.Errorf("a request that cannot be made in time: %v, want ResourceExhausted and when to come back", err)
	}
}
