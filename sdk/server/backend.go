package server

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/external-secrets/eso/sdk/provider"
)

// backendCalls counts the calls of the backend. ESO v1's metric for them counts
// the operator's calls of providers here.
type backendCalls struct {
	count    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

var _ provider.Calls = (*backendCalls)(nil)

func newBackendCalls() *backendCalls {
	return &backendCalls{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "externalsecrets_provider_backend_calls_total",
			Help: "Calls of the backend, by operation, outcome and the backend's code.",
		}, []string{"call", "status", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "externalsecrets_provider_backend_duration_seconds",
			Help:    "Duration of calls of the backend, by operation.",
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

	b.count.WithLabelValues(operation, status, code).Inc()
	b.duration.WithLabelValues(operation).Observe(took.Seconds())
}
