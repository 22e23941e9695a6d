package server

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/external-secrets/eso/sdk/provider"
)

// backendCalls counts what the provider asks of its backend. The counter has
// the name that dashboards of ESO v1 know, and one label more.
type backendCalls struct {
	provider string
	count    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

var _ provider.Calls = (*backendCalls)(nil)

func newBackendCalls(name string) *backendCalls {
	return &backendCalls{
		provider: name,
		count: prometheus.NewCounterVec(prometheus.CounterOpts{ //nolint:promlinter // ESO v1's name
			Name: "externalsecret_provider_api_calls_count",
			Help: "Calls of the backend, by operation, outcome and the backend's code.",
		}, []string{"provider", "call", "status", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "externalsecrets_provider_backend_duration_seconds",
			Help:    "Time that calls of the backend took, by operation.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"call"}),
	}
}

// Called counts one call.
func (b *backendCalls) Called(operation, code string, took time.Duration) {
	status := "error"
	if code == "OK" || strings.HasPrefix(code, "2") || strings.HasPrefix(code, "3") {
		status = "success"
	}

	b.count.WithLabelValues(b.provider, operation, status, code).Inc()
	b.duration.WithLabelValues(operation).Observe(took.Seconds())
}
