package measure

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

const (
	verbApply = "APPLY"
	verbList  = "LIST"
	verbWatch = "WATCH"
)

// ignored are resources that only the control plane's own upkeep touches.
func ignored(resource string) bool { return resource == "" || resource == "leases" }

// requestName is "VERB resource" or "VERB resource/subresource", with the verbs
// of the API server's metrics.
func requestName(verb, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}

	return verb + " " + resource
}

// ServedRequests reads how many requests for resources the API server has
// served so far. Watches, which last, are left out. The look itself costs the
// API server some tens of milliseconds.
func ServedRequests(ctx context.Context, client rest.Interface) (Counts, error) {
	raw, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the API server's metrics: %w", err)
	}

	return parseRequests(string(raw))
}

func parseRequests(metrics string) (Counts, error) {
	const family = "apiserver_request_total"

	// The other families, megabytes of them, need not be parsed.
	var text strings.Builder

	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, family+"{") || strings.HasPrefix(line, "# TYPE "+family+" ") {
			text.WriteString(line)
		}
	}

	parser := expfmt.NewTextParser(model.LegacyValidation)

	families, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		return nil, fmt.Errorf("cannot understand the API server's metrics: %w", err)
	}

	counts := Counts{}

	for _, metric := range families[family].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}

		if labels["verb"] == verbWatch || ignored(labels["resource"]) {
			continue
		}

		counts[requestName(labels["verb"], labels["resource"], labels["subresource"])] += int(metric.GetCounter().GetValue())
	}

	return counts, nil
}

// Ledger counts the requests of this process's own clients, under the names
// that the API server counts them by, so that they can be taken off.
type Ledger struct {
	mu     sync.Mutex
	counts Counts
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{counts: Counts{}} }

// Wrap makes the clients of a configuration keep the ledger.
func (l *Ledger) Wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &ledgerTransport{ledger: l, next: next} })
}

// Add counts requests of a client without the ledger.
func (l *Ledger) Add(name string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.counts[name] += n
}

// Counts so far.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()

	return maps.Clone(l.counts)
}

type ledgerTransport struct {
	ledger *Ledger
	next   http.RoundTripper
}

// RoundTrip counts a request and performs it.
func (t *ledgerTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if name := nameOf(request); name != "" {
		t.ledger.Add(name, 1)
	}

	return t.next.RoundTrip(request)
}

// nameOf gives the name that the API server counts a request by; empty for what
// it does not count here.
func nameOf(request *http.Request) string {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")

	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return ""
	}

	// A namespace is a resource as well as what other resources stand in.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}

	resource, named, subresource := parts[0], len(parts) > 1, ""
	if len(parts) > 2 {
		subresource = parts[2]
	}

	verb := request.Method

	switch {
	case verb == http.MethodGet && request.URL.Query().Get("watch") != "":
		return ""
	case verb == http.MethodGet && !named:
		verb = verbList
	case verb == http.MethodDelete && !named:
		verb = "DELETECOLLECTION"
	case verb == http.MethodPatch && strings.HasPrefix(request.Header.Get("Content-Type"), "application/apply-patch"):
		verb = verbApply
	}

	if ignored(resource) {
		return ""
	}

	return requestName(verb, resource, subresource)
}
