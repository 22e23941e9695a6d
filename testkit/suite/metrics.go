package suite

import (
	"io"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// MetricsText returns the metrics that a process serves at a URL.
func MetricsText(t *testing.T, url string) string {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	if err != nil || len(text) == 0 {
		t.Fatalf("cannot read the metrics at %s: %d bytes: %v", url, len(text), err)
	}

	return string(text)
}

// Metrics returns the metrics that a process serves at a URL, by name.
func Metrics(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()

	return parseMetrics(t, MetricsText(t, url))
}

func parseMetrics(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()

	parser := expfmt.NewTextParser(model.LegacyValidation)

	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}

	return families
}
