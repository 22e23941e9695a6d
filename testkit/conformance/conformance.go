// Package conformance holds the providers of this repository to the protocol,
// with the same kit that authors of other providers use: it starts the very
// processes that ship, and tests all that they claim.
//
//test:programs sdk/cmd/provider-conformance
package conformance

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/yaml"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/release/metadata"
	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/repository"
	"github.com/external-secrets/eso/testkit/suite"
)

const (
	// program is the kit's command.
	program = "provider-conformance"
	// limit is what a whole run may take.
	limit = 2 * time.Minute
)

// Kit is the command, as an author of a provider runs it.
type Kit struct {
	// Suite is the installation that has the provider.
	Suite *suite.Suite
	// Provider is its name.
	Provider string
	// Flags and Env of the provider's process besides, the latter as NAME=value.
	Flags, Env []string

	path string
}

// New builds the command.
func New(t *testing.T, s *suite.Suite, provider string) *Kit {
	t.Helper()

	return &Kit{Suite: s, Provider: provider, path: build(t)}
}

// report is what of a report the test reads.
type report struct {
	Conformant bool    `json:"conformant"`
	Seconds    float64 `json:"seconds"`
	Counts     struct {
		Passed       int `json:"passed"`
		Failed       int `json:"failed"`
		Skipped      int `json:"skipped"`
		NotExercised int `json:"notExercised"`
	} `json:"counts"`
	Claims []struct {
		Capability string `json:"capability"`
		Result     string `json:"result"`
		Message    string `json:"message"`
	} `json:"claims"`
	Tests []struct {
		ID     string `json:"id"`
		Result string `json:"result"`
	} `json:"tests"`
}

// build returns the command's file.
func build(t *testing.T) string {
	t.Helper()

	if given := os.Getenv(installation.BinariesEnv); given != "" {
		path := filepath.Join(given, program)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}

	dir := t.TempDir()
	if err := installation.BuildPackages(t.Context(), dir, map[string]string{program: "./sdk/cmd/" + program}, io.Discard); err != nil {
		t.Fatal(err)
	}

	return filepath.Join(dir, program)
}

// Run runs the kit against a provider of the installation, which it starts
// once more, with certificates of its own. notExercised are the tests that the
// backend leaves nothing to try for.
func (k *Kit) Run(t *testing.T, target map[string]any, notExercised ...string) {
	t.Helper()

	account := types.NamespacedName{Namespace: "provider-" + k.Provider, Name: "external-secrets-provider-" + k.Provider}

	kubeconfig, err := k.Suite.ControlPlane.KubeconfigFor(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	asJSON, output := filepath.Join(dir, "report.json"), filepath.Join(dir, "provider.log")
	started := map[string]any{"args": append([]string{
		k.Suite.Program("provider-" + k.Provider), "--listen={address}", "--tls-dir={tlsDir}", "--kubeconfig=" + kubeconfig,
		"--metrics-listen=", "--log-level=debug", "--log-format=text",
	}, k.Flags...)}
	target["profile"], target["command"] = "full", started

	if k.Env != nil {
		started["env"] = k.Env
	}

	text, err := yaml.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(dir, "target.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()

	command := exec.CommandContext(ctx, k.path, "--report-json", asJSON, "--provider-output", output, file)

	lines, err := command.CombinedOutput()
	if err != nil {
		printed, _ := os.ReadFile(output)
		t.Logf("the provider printed:\n%s", printed)
		t.Errorf("provider-conformance: %v\n%s", err, lines)
	}

	text, err = os.ReadFile(asJSON)
	if err != nil {
		t.Fatal(err)
	}

	var result report
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}

	t.Logf("%s: %d passed, %d failed, %d skipped, %d not exercised, in %.1f s", k.Provider,
		result.Counts.Passed, result.Counts.Failed, result.Counts.Skipped, result.Counts.NotExercised, result.Seconds)

	if !result.Conformant || result.Counts.Failed > 0 || result.Counts.Passed == 0 {
		t.Errorf("the report: %+v", result.Counts)
	}

	if took := time.Duration(result.Seconds * float64(time.Second)); took > limit {
		t.Errorf("it took %s", took)
	}

	absent, _ := target["absent"].(map[string]string)

	for _, claim := range result.Claims {
		want := "pass"
		if slices.ContainsFunc(slices.Collect(maps.Keys(absent)), func(name string) bool { return strings.EqualFold(name, claim.Capability) }) {
			want = "not-exercised"
		}

		if claim.Result != want {
			t.Errorf("the claim of %s: %s (%s)", claim.Capability, claim.Result, claim.Message)
		}
	}

	k.claims(t, result, target)

	var left []string

	for _, test := range result.Tests {
		if test.Result == "not-exercised" {
			left = append(left, test.ID)
		}
	}

	if slices.Sort(left); !slices.Equal(left, notExercised) {
		t.Errorf("not exercised (-want +got):\n%s", cmp.Diff(notExercised, left))
	}
}

// claims compares what the provider claims with what its metadata.yaml says,
// and so with the table of its README.
func (k *Kit) claims(t *testing.T, result report, target map[string]any) {
	t.Helper()

	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}

	said, err := metadata.Load(filepath.Join(root, "providers", k.Provider))
	if err != nil {
		t.Fatal(err)
	}

	config, _ := target["config"].(map[string]any)

	claimed := make([]string, 0, len(result.Claims))
	for _, claim := range result.Claims {
		claimed = append(claimed, claim.Capability)
	}

	for _, kind := range said.Kinds {
		if kind.Name != config["kind"] {
			continue
		}

		wanted := make([]string, 0, len(kind.Capabilities))
		for _, capability := range kind.Capabilities {
			wanted = append(wanted, strings.ToUpper(capability))
		}

		if diff := cmp.Diff(wanted, claimed); diff != "" {
			t.Errorf("claims of %s (-metadata.yaml +provider):\n%s", kind.Name, diff)
		}

		return
	}

	t.Errorf("providers/%s/metadata.yaml lists no kind %v", k.Provider, config["kind"])
}

// ConfigOf refers to a provider config that exists.
func (k *Kit) ConfigOf(t *testing.T, kind, namespace, name string) map[string]any {
	t.Helper()

	object := &unstructured.Unstructured{}
	object.SetAPIVersion(v2alpha1.DefaultConfigAPIVersion)
	object.SetKind(kind)

	if err := k.Suite.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}

	return map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": kind, "namespace": namespace, "name": name,
		"uid": string(object.GetUID()), "generation": object.GetGeneration(),
	}
}
