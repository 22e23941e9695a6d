package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// faultEnv makes the test's program a provider with a fault.
const faultEnv = "CONFORMANCE_REFERENCE"

func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv(faultEnv); ok {
		os.Exit(runReference(fault))
	}

	goleak.VerifyTestMain(m)
}

// target is a reference provider that the kit starts, with a fault.
func target(fault string) Target {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}

	return Target{
		Command: &Command{Args: []string{program, "--listen={address}", "--tls-dir={tlsDir}"}, Env: []string{faultEnv + "=" + fault}},
		Profile: Full, Config: *config("Memory", "backend"), Fixtures: fixtures(),
	}
}

func conform(t *testing.T, target Target) Report {
	t.Helper()

	report, err := Run(t.Context(), target, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}

	return report
}

// with are the tests that had an outcome.
func with(report Report, outcome Outcome) []string {
	ids := []string{}

	for _, result := range report.Tests {
		if result.Outcome == outcome {
			ids = append(ids, result.ID)
		}
	}

	slices.Sort(ids)

	return ids
}

func failures(report Report) string {
	var lines []string

	for _, result := range report.Tests {
		if result.Outcome == Fail || result.Outcome == NotExercised {
			lines = append(lines, result.line())
		}
	}

	return strings.Join(lines, "\n")
}

// A provider that keeps the protocol passes every test, and none is left out
// for want of a fixture.
func TestReferenceConforms(t *testing.T) {
	t.Parallel()

	report := conform(t, target(""))

	if !report.Conformant || report.Counts.Failed > 0 || report.Counts.NotExercised > 0 {
		t.Errorf("it does not conform:\n%s", failures(report))
	}

	for _, id := range with(report, Skipped) {
		if !strings.HasSuffix(id, "-unclaimed-is-unimplemented") {
			t.Errorf("%s was skipped", id)
		}
	}

	for _, claim := range report.Claims {
		if claim.Outcome != Pass {
			t.Errorf("the claim of %s: %s (%s)", claim.Capability, claim.Outcome, claim.Message)
		}
	}

	if len(report.Claims) != len(capabilities()) {
		t.Errorf("%d claims", len(report.Claims))
	}
}

// A kit that nothing fails proves nothing: each fault fails the tests that are
// meant for it, and no other.
func TestFaultsAreFound(t *testing.T) {
	tests := []struct {
		fault, why string
		want       []string
	}{
		{"info-changes", "the operator plans by the first answer", []string{"identity.info-is-stable"}},
		{"claims-what-it-does-not-serve", "one test says so, and the others of the capability do not repeat it", []string{"claims.watch-is-served"}},
		{"serves-what-it-does-not-claim", "nobody would ever call it", []string{"claims.exists-unclaimed-is-unimplemented"}},
		{"leaves-the-namespace", "one namespace reads what another's credentials open", []string{"context.store-stays-in-its-namespace"}},
		{"ignores-the-uid", "a config of the same name is another one", []string{"context.config-uid-is-checked"}},
		{"invalid-without-a-message", "nobody learns what is wrong", []string{"validate.config-that-does-not-exist", "validate.invalid"}},
		{"wrong-code-for-missing", "a target would never be deleted", []string{"read.missing-key-is-not-found"}},
		{"latest-for-a-missing-version", "a pinned version would be another value", []string{"read.missing-version-is-not-found"}},
		{"takes-values-for-text", "key stores are bytes", []string{"push.binary", "read.binary"}},
		{"ignores-metadata-policy", "the value travels where tags were asked for", []string{"read.metadata"}},
		{"duplicate-map-keys", "either value may end in the target", []string{"read.map-has-each-key-once"}},
		{"changes-ids", "answers go to other questions", []string{"batch.ids-are-echoed"}},
		{"answers-a-key-once", "every batch with one key twice is short of an answer", []string{"batch.ids-are-echoed", "batch.of-the-largest-size", "batch.same-secret-twice"}},
		{"cuts-a-large-batch", "what is left out looks gone", []string{"batch.of-the-largest-size"}},
		{"one-failure-fails-all", "one missing key keeps the others from their target", []string{"batch.one-failure-is-alone"}},
		{"always-not-modified", "an old value stays for ever", []string{"revision.changes-with-the-value", "revision.unknown"}},
		{"finds-twice", "either value may end in the target", []string{"find.each-once"}},
		{"cuts-a-find", "what is left out looks gone", []string{"find.over-max-results-is-refused"}},
		{"writes-always", "each sync makes a version", []string{"push.repeated-changes-nothing"}},
		{"overwrites-a-foreign-secret", "with and without adopt", []string{"push.adopting-does-not-take-from-an-owner", "push.adopts-what-has-no-owner", "push.foreign-is-refused"}},
		{"replaces-what-exists", "what was generated once changes", []string{"push.if-not-exists"}},
		{"deletes-a-foreign-secret", "somebody else's secret is gone", []string{"delete.foreign-stays"}},
		{"pushes-properties-alone", "the others of the secret are gone", []string{"push.property"}},
		{"deletes-the-whole-for-a-property", "the others of the secret are gone", []string{"delete.property"}},
		{"deletes-once", "a repeated call fails", []string{"delete.repeated-is-no-error"}},
		{"generates-two", "one of them is never revoked", []string{"generate.repeated-makes-one"}},
		{"keeps-the-value-in-the-state", "the state is recorded in the cluster", []string{"generate.state-holds-no-value"}},
		{"cleans-up-once", "a repeated call fails", []string{"cleanup.repeated-is-no-error"}},
		{"cleans-up-with-the-config-alone", "configs are deleted first", []string{"cleanup.without-config"}},
		{"refuses-unknown-fields", "a newer operator could not call it", []string{"wire.unknown-fields-are-ignored"}},
		{"oversize-answer", "nobody receives it", []string{"wire.answers-keep-the-limit"}},
		{"shares-state-between-calls", "callers see each other's secrets", []string{"concurrency.parallel-batches"}},
		{"ignores-the-deadline", "what its caller has given up goes on", []string{"deadline.slow-call-ends"}},
		{"lets-in-who-has-no-certificate", "whoever reaches the port reads secrets", []string{"tls.no-client-certificate"}},
		{"lets-in-who-says-operator", "anybody can make such a certificate", []string{"tls.expired-certificate", "tls.foreign-authority"}},
		{"lets-in-any-client-of-the-authority", "one provider calls another", []string{"tls.another-provider"}},
		{"speaks-tls-1.2", "both sides speak 1.3", []string{"tls.version-1.2"}},
		{"speaks-plain-text", "secrets travel unprotected", []string{"tls.plain-text"}},
		{"ends-without-a-word", "calls go to who does not answer", []string{"lifecycle.health-says-so-first"}},
		{"cuts-calls-short", "an update fails syncs", []string{"lifecycle.calls-in-flight-end"}},
		{"takes-calls-to-the-end", "it never ends", []string{"lifecycle.new-calls-are-refused"}},
		{"exits-with-1", "it looks like a crash", []string{"lifecycle.exits-with-status-0"}},
		{"no-error-info", "an error proves nothing", []string{"errors.have-info"}},
		{"leaks-a-value", "conditions are read by everybody", []string{"errors.hold-no-value"}},
		{"prints-values", "logs are read by everybody", []string{"errors.output-holds-no-value"}},
	}

	type outcome struct {
		report Report
		err    error
	}

	// Runs wait more than they work: some more at a time than there are
	// processors, as go test would have it.
	free, outcomes := make(chan struct{}, 4), make([]chan outcome, len(tests))

	for i, test := range tests {
		outcomes[i] = make(chan outcome, 1)

		go func() {
			free <- struct{}{}
			defer func() { <-free }()

			report, err := Run(t.Context(), target(test.fault), Options{})
			outcomes[i] <- outcome{report, err}
		}()
	}

	for i, test := range tests {
		t.Run(test.fault, func(t *testing.T) {
			got := <-outcomes[i]
			if got.err != nil {
				t.Fatal(got.err)
			}

			if diff := cmp.Diff(test.want, with(got.report, Fail)); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%s", test.why, diff, failures(got.report))
			}

			if got.report.Conformant {
				t.Error("the report says that it conforms")
			}
		})
	}
}
