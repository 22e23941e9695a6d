package server

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/codes"
)

// recentSpan is the time that recent counts.
const recentSpan = time.Minute

// metrics of a provider.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	reads    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	backend  *backendCalls
	reloads  prometheus.Counter
	refused  prometheus.Counter

	// expires and stores are set before serving; nil where there is no TLS.
	expires func() time.Time
	stores  func() int

	mu    sync.Mutex
	slots [60]slot
}

// slot counts the calls of one second.
type slot struct {
	second      int64
	failed, all int
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		backend:  newBackendCalls(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "externalsecrets_provider_requests_total",
			Help: "Calls served, by RPC and gRPC code.",
		}, []string{"method", "code"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "externalsecrets_provider_reads_total",
			Help: "Reads in batches that were answered, by gRPC code.",
		}, []string{"code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "externalsecrets_provider_request_duration_seconds",
			Help:    "Time to serve a call, by RPC.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"method"}),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "externalsecrets_provider_tls_reloads_total",
			Help: "Loads of the TLS files.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "externalsecrets_provider_refused_connections_total",
			Help: "Connections of callers that could not be authenticated; the log has the reason.",
		}),
	}

	m.registry.MustRegister(m.requests, m.reads, m.duration, m.backend.count, m.backend.duration, m.reloads, m.refused,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "externalsecrets_provider_stores",
			Help: "Stores and generators that are kept.",
		}, func() float64 {
			if m.stores == nil {
				return 0
			}

			return float64(m.stores())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "externalsecrets_provider_certificate_expiry_timestamp_seconds",
			Help: "When the server certificate expires, in seconds since 1970; 0 without TLS.",
		}, func() float64 {
			if m.expires == nil {
				return 0
			}

			return float64(m.expires().Unix())
		}))

	return m
}

func (m *metrics) reloaded() { m.reloads.Inc() }

// call counts a call, and the reads of a batch in its answer.
func (m *metrics) call(method string, code codes.Code, took time.Duration, reads ...codes.Code) {
	bad := isServerFault(code)

	for _, read := range reads {
		m.reads.WithLabelValues(read.String()).Inc()

		bad = bad || isServerFault(read)
	}

	m.requests.WithLabelValues(method, code.String()).Inc()
	m.duration.WithLabelValues(method).Observe(took.Seconds())

	if method == "GetInfo" || method == "GetStatus" || method == "Check" {
		return
	}

	second := time.Now().Unix()

	m.mu.Lock()
	defer m.mu.Unlock()

	at := &m.slots[second%int64(len(m.slots))]
	if at.second != second {
		*at = slot{second: second}
	}

	at.all++

	if bad {
		at.failed++
	}
}

// isServerFault reports whether a code means a fault of the backend or the provider,
// not of the caller.
func isServerFault(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.DataLoss:
		return true
	default:
		return false
	}
}

// recent returns the number of calls of the last minute, and of those that failed
// for a reason that is not the caller's.
func (m *metrics) recent(now time.Time) (failed, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()

	since := now.Add(-recentSpan).Unix()
	for _, at := range m.slots {
		if at.second > since {
			failed += at.failed
			all += at.all
		}
	}

	return failed, all
}
