package server

import (
	"fmt"
	"sync/atomic"
	"time"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

const (
	// degradedShare of failed calls in the last minute makes the provider
	// degraded, from degradedCalls calls on.
	degradedShare = 0.5
	degradedCalls = 5
)

// ownStatus derives the provider's state from its recent calls.
type ownStatus struct {
	metrics  *metrics
	draining atomic.Bool
}

func (s *ownStatus) drain() { s.draining.Store(true) }

func (s *ownStatus) now() (pb.GetStatusResponse_State, string) {
	if s.draining.Load() {
		return pb.GetStatusResponse_STATE_FAILING, "the provider is shutting down"
	}

	if s.metrics.expires != nil {
		if expires := s.metrics.expires(); time.Now().After(expires) {
			return pb.GetStatusResponse_STATE_FAILING, fmt.Sprintf("the server certificate expired at %s and no newer one was delivered", expires.UTC().Format(time.RFC3339))
		}
	}

	if failed, all := s.metrics.recent(time.Now()); all >= degradedCalls && float64(failed) >= degradedShare*float64(all) {
		return pb.GetStatusResponse_STATE_DEGRADED, fmt.Sprintf("%d of the last minute's %d calls failed because of the backend or a defect of the provider", failed, all)
	}

	return pb.GetStatusResponse_STATE_OK, ""
}
