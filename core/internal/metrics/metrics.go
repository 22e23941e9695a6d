// Package metrics holds the operator's metrics. Names of External Secrets
// Operator are kept where dashboards rely on them; metrics of each
// object are read from the cache when they are collected, and cost nothing until
// then.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// collectTimeout bounds the reads of the cache for one scrape.
const collectTimeout = 10 * time.Second

// Recorder is a prometheus.Collector of all of the operator's own metrics.
type Recorder struct {
	reader       client.Reader
	certificates Certificates
	now          func() time.Time

	calls       *prometheus.CounterVec
	failures    *prometheus.CounterVec
	last        *prometheus.GaugeVec
	durations   *prometheus.HistogramVec
	repairs     prometheus.Counter
	deferred    prometheus.Counter
	apiCalls    *prometheus.CounterVec
	requests    *prometheus.CounterVec
	requestTime *prometheus.HistogramVec

	conditions *prometheus.Desc
	stores     *prometheus.Desc
	clusters   *prometheus.Desc
	fanOuts    *prometheus.Desc
	overdue    *prometheus.Desc
	expiry     *prometheus.Desc
}

var _ prometheus.Collector = (*Recorder)(nil)

// Certificates returns when the operator's certificates expire; zero for those
// that do not exist yet.
type Certificates interface {
	Expires() (authority, own time.Time)
}

// New returns a Recorder that reads objects from a cache.
func New(reader client.Reader, certificates Certificates) *Recorder {
	object := []string{"name", "namespace"}
	condition := []string{"name", "namespace", "condition", "status"}
	seconds := prometheus.ExponentialBuckets(0.001, 2.5, 13) // to a minute

	return &Recorder{
		reader:       reader,
		certificates: certificates,
		now:          time.Now,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "externalsecret_sync_calls_total", Help: "Syncs of an ExternalSecret.",
		}, object),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{ //nolint:promlinter // the name is upstream's
			Name: "externalsecret_sync_calls_error", Help: "Syncs of an ExternalSecret that failed.",
		}, object),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "externalsecret_reconcile_duration", Help: "Duration of an ExternalSecret's last sync, in nanoseconds. externalsecret_sync_duration_seconds is the histogram of all syncs.",
		}, object),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "externalsecret_sync_duration_seconds", Help: "Duration of syncs, by result: synced or failed.", Buckets: seconds,
		}, []string{"result"}),
		repairs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "externalsecret_repairs_total", Help: "Targets that were repaired after another client had changed or deleted them.",
		}),
		deferred: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "externalsecret_deferred_total", Help: "Syncs that were deferred because their store or provider occupied its share of the workers.",
		}),
		apiCalls: prometheus.NewCounterVec(prometheus.CounterOpts{ //nolint:promlinter // the name is upstream's
			Name: "externalsecret_provider_api_calls_count", Help: "Calls of providers, by SecretProvider, RPC and status, success or error.",
		}, []string{"provider", "call", "status"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "externalsecret_provider_requests_total", Help: "Calls of providers, by SecretProvider, RPC and gRPC code.",
		}, []string{"provider", "method", "code"}),
		requestTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "externalsecret_provider_request_duration_seconds", Help: "Duration of calls of providers, by SecretProvider and RPC.", Buckets: seconds,
		}, []string{"provider", "method"}),
		conditions: prometheus.NewDesc("externalsecret_status_condition", "1 where an ExternalSecret's condition has the status, else 0.", condition, nil),
		stores:     prometheus.NewDesc("secretstore_status_condition", "1 where a SecretStore's condition has the status, else 0.", condition, nil),
		clusters:   prometheus.NewDesc("clustersecretstore_status_condition", "1 where a ClusterSecretStore's condition has the status, else 0.", condition, nil),
		fanOuts:    prometheus.NewDesc("clusterexternalsecret_status_condition", "1 where a ClusterExternalSecret's condition has the status, else 0.", condition, nil),
		expiry:     prometheus.NewDesc("externalsecret_certificate_expiry_timestamp_seconds", "When a certificate of the operator expires, in seconds since 1970: authority or client.", []string{"certificate"}, nil),
		overdue:    prometheus.NewDesc("externalsecret_oldest_overdue_seconds", "How long the oldest overdue refresh has been overdue; 0 if there is none.", nil, nil),
	}
}

// Synced counts a sync.
func (m *Recorder) Synced(object types.NamespacedName, took time.Duration, failed bool) {
	result := "synced"

	m.calls.WithLabelValues(object.Name, object.Namespace).Inc()
	m.last.WithLabelValues(object.Name, object.Namespace).Set(float64(took.Nanoseconds()))

	if failed {
		result = "failed"

		m.failures.WithLabelValues(object.Name, object.Namespace).Inc()
	}

	m.durations.WithLabelValues(result).Observe(took.Seconds())
}

// Repaired counts a target that was repaired.
func (m *Recorder) Repaired() { m.repairs.Inc() }

// Deferred counts a sync that was deferred.
func (m *Recorder) Deferred() { m.deferred.Inc() }

// Called counts a call of a provider.
func (m *Recorder) Called(provider, method, code string, took time.Duration) {
	status := "error"
	if code == "OK" {
		status = "success"
	}

	m.apiCalls.WithLabelValues(provider, method, status).Inc()
	m.requests.WithLabelValues(provider, method, code).Inc()
	m.requestTime.WithLabelValues(provider, method).Observe(took.Seconds())
}

// Forget drops the series of a deleted object.
func (m *Recorder) Forget(object types.NamespacedName) {
	m.calls.DeleteLabelValues(object.Name, object.Namespace)
	m.failures.DeleteLabelValues(object.Name, object.Namespace)
	m.last.DeleteLabelValues(object.Name, object.Namespace)
}

func (m *Recorder) counted() []prometheus.Collector {
	return []prometheus.Collector{
		m.calls, m.failures, m.last, m.durations, m.repairs, m.deferred, m.apiCalls, m.requests, m.requestTime,
	}
}

// Describe names every metric.
func (m *Recorder) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.counted() {
		c.Describe(out)
	}

	for _, desc := range []*prometheus.Desc{m.conditions, m.stores, m.clusters, m.fanOuts, m.overdue, m.expiry} {
		out <- desc
	}
}

// Collect gives every metric.
func (m *Recorder) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.counted() {
		c.Collect(out)
	}

	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()

	authority, own := m.certificates.Expires()
	for name, when := range map[string]time.Time{"authority": authority, "client": own} {
		if !when.IsZero() {
			out <- prometheus.MustNewConstMetric(m.expiry, prometheus.GaugeValue, float64(when.Unix()), name)
		}
	}

	m.collectSecrets(ctx, out)
	m.collectStores(ctx, out)
	m.collectFanOuts(ctx, out)
}

// collectSecrets reads ExternalSecrets. A cache that is not synced yet has
// none.
func (m *Recorder) collectSecrets(ctx context.Context, out chan<- prometheus.Metric) {
	var list esv1.ExternalSecretList
	if err := m.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}

	var oldest time.Duration

	for i := range list.Items {
		es := &list.Items[i]

		for _, condition := range es.Status.Conditions {
			emit(out, m.conditions, es.Name, es.Namespace, condition.Type, condition.Status)
		}

		oldest = max(oldest, plan.Overdue(es, m.now()))
	}

	out <- prometheus.MustNewConstMetric(m.overdue, prometheus.GaugeValue, oldest.Seconds())
}

func (m *Recorder) collectStores(ctx context.Context, out chan<- prometheus.Metric) {
	var stores v2alpha1.SecretStoreList
	if err := m.reader.List(ctx, &stores, client.UnsafeDisableDeepCopy); err == nil {
		for i := range stores.Items {
			for _, condition := range stores.Items[i].Status.Conditions {
				emit(out, m.stores, stores.Items[i].Name, stores.Items[i].Namespace, condition.Type, condition.Status)
			}
		}
	}

	var clusters v2alpha1.ClusterSecretStoreList
	if err := m.reader.List(ctx, &clusters, client.UnsafeDisableDeepCopy); err == nil {
		for i := range clusters.Items {
			for _, condition := range clusters.Items[i].Status.Conditions {
				emit(out, m.clusters, clusters.Items[i].Name, "", condition.Type, condition.Status)
			}
		}
	}
}

func (m *Recorder) collectFanOuts(ctx context.Context, out chan<- prometheus.Metric) {
	var list esv1.ClusterExternalSecretList
	if err := m.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}

	for i := range list.Items {
		for _, condition := range list.Items[i].Status.Conditions {
			emit(out, m.fanOuts, list.Items[i].Name, "", condition.Type, condition.Status)
		}
	}
}

// emit emits both statuses of a condition: dashboards query either.
func emit(out chan<- prometheus.Metric, desc *prometheus.Desc, name, namespace, condition string, is metav1.ConditionStatus) {
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		value := 0.0
		if status == is {
			value = 1
		}

		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, name, namespace, condition, string(status))
	}
}
