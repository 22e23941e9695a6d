package conformance

import (
	"context"
	"testing"

	"github.com/external-secrets/eso/sdk/internal/kit"
)

// Target is a provider under test, how to start it, and the secrets that its
// backend holds.
type Target = kit.Target

// Options of a run. The zero value runs all tests.
type Options = kit.Options

// Report is the result of a run.
type Report = kit.Report

// Load reads a target from a YAML file. Paths in it are relative to the file.
func Load(path string) (Target, error) { return kit.Load(path) }

// Run tests a target. It returns an error when there is nothing to report: the
// target cannot be used, or the provider cannot be reached at all.
func Run(ctx context.Context, target Target, options Options) (Report, error) {
	return kit.Run(ctx, target, options)
}

// Test runs the tests on a target, and fails t for each one that the provider
// fails. The report has the others too.
func Test(t *testing.T, target Target, options Options) Report {
	t.Helper()

	report, err := kit.Run(t.Context(), target, options)
	if err != nil {
		t.Fatal(err)
	}

	for _, result := range report.Tests {
		if result.Outcome == kit.Fail {
			t.Errorf("%s: %s\n%s", result.ID, result.Message, result.Why)
		}
	}

	t.Logf("%d passed, %d failed, %d skipped, %d not exercised", report.Counts.Passed, report.Counts.Failed, report.Counts.Skipped, report.Counts.NotExercised)

	return report
}
