package functional

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/external-secrets/eso/testkit/repository"
	"github.com/external-secrets/eso/testkit/suite"
)

// The manifests of the proposal are accepted as they stand under strict
// validation; applied again they change nothing.
func TestManifestsOfTheProposal(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("testdata/proposal/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}

	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			product.RoundTrips(t, "default", string(content))
		})
	}
}

// So are the product's own samples.
func TestSamplesRoundTrip(t *testing.T) {
	t.Parallel()

	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}

	files, err := filepath.Glob(filepath.Join(root, "docs", "samples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}

	ns := product.Namespace(t)

	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}

			product.RoundTrips(t, ns, string(content))
		})
	}
}

// Admission rejects what the schema can detect, with a message that contains the
// valid value.
func TestAdmissionRefuses(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)

	for _, c := range []struct{ why, from, to, want string }{
		{"secrets never travel without TLS", "  providerConfig:", "  providerConfig:\n    address: http://127.0.0.1:1", "http:// is refused"},
		{"an unknown field is a typing error", "  providerConfig:", "  providerconfig: {}\n  providerConfig:", "field not declared in schema"},
		{"a duration that is none", "  providerConfig:", "  refreshInterval: soon\n  providerConfig:", "refreshInterval"},
		{"a negative duration", "  providerConfig:", "  refreshInterval: -1s\n  providerConfig:", "zero or more"},
		{"two ways to secure one connection", "  providerConfig:", "  providerConfig:\n    auth: {clientCertificate: {}, spiffeRef: {}}", "spiffeRef replaces clientCertificate"},
		{"a gate that is neither open nor shut", "  providerConfig:", "  gatingPolicy: Maybe\n  providerConfig:", "gatingPolicy"},
		{"a cluster store without the config's namespace", "kind: SecretStore\n", "kind: ClusterSecretStore\n", "providerRef.namespace is required"},
	} {
		t.Run(c.why, func(t *testing.T) {
			manifest := strings.Replace(suite.FakeStore, c.from, c.to, 1)
			if manifest == suite.FakeStore {
				t.Fatal("the case changes nothing")
			}

			out, err := product.Kubectl(t.Context(), manifest, "-n", ns, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("want a refusal with %q, got: %v\n%s", c.want, err, out)
			}
		})
	}
}
