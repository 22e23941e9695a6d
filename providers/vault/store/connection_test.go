package store

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A connection that is dropped without a word is found by pings.
func TestConnectionsArePinged(t *testing.T) {
	t.Parallel()

	transport := newTransport(nil, nil)
	want := &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}

	if diff := cmp.Diff(want, transport.HTTP2); diff != "" || !transport.ForceAttemptHTTP2 {
		t.Errorf("HTTP/2 is attempted: %t (-want +got):\n%s", transport.ForceAttemptHTTP2, diff)
	}
}
