package kit

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/external-secrets/eso/sdk/server"
)

// faultEnv makes the test's program a provider with a fault.
const faultEnv = "CONFORMANCE_REFERENCE"

func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv(faultEnv); ok {
		os.Exit(runReference(fault))
	}

	// Runs wait more than they work: some more at a time than there are processors.
	flag.Parse()

	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
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
		Command: &Command{Args: []string{program, "--listen={address}", "--tls-dir={tlsDir}"}, Env: []string{
			faultEnv + "=" + fault,
			// The race detector would wait a second before each end.
			"GORACE=atexit_sleep_ms=0",
		}},
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
		if !strings.HasSuffix(id, "-unclaimed-is-unimplemented") && !strings.HasSuffix(id, "-absent-is-unimplemented") {
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
		{"info-changes", "the operator relies on the first answer", []string{"identity.info-is-stable"}},
		{"claims-what-it-does-not-serve", "one test reports it, and the other tests of the capability are skipped", []string{"claims.watch-is-served"}},
		{"serves-what-it-does-not-claim", "the operator would never call it", []string{"claims.exists-unclaimed-is-unimplemented"}},
		{"leaves-the-namespace", "one namespace could use another namespace's credentials", []string{"context.store-stays-in-its-namespace"}},
		{"ignores-the-uid", "a recreated config is a different object", []string{"context.config-uid-is-checked"}},
		{"invalid-without-a-message", "the user cannot see what is wrong", []string{"validate.config-that-does-not-exist", "validate.invalid"}},
		{"wrong-code-for-missing", "a target would never be deleted", []string{"read.missing-key-is-not-found"}},
		{"latest-for-a-missing-version", "a pinned version would return another value", []string{"read.missing-version-is-not-found"}},
		{"takes-values-for-text", "key stores are binary", []string{"push.binary", "read.binary"}},
		{"ignores-metadata-policy", "the value would be sent although tags were requested", []string{"read.metadata"}},
		{"duplicate-map-keys", "the value in the target would be arbitrary", []string{"read.map-has-each-key-once"}},
		{"changes-ids", "results would be assigned to other reads", []string{"batch.ids-are-echoed"}},
		{"answers-a-key-once", "a batch with the same key twice lacks a result", []string{"batch.ids-are-echoed", "batch.of-the-largest-size", "batch.same-secret-twice"}},
		{"cuts-a-large-batch", "the omitted secrets appear to be deleted", []string{"batch.of-the-largest-size"}},
		{"one-failure-fails-all", "a missing key must not affect other reads", []string{"batch.one-failure-is-alone"}},
		{"always-not-modified", "the target would keep an outdated value", []string{"revision.changes-with-the-value", "revision.unknown"}},
		{"finds-twice", "the value in the target would be arbitrary", []string{"find.each-once"}},
		{"cuts-a-find", "the omitted secrets appear to be deleted", []string{"find.over-max-results-is-refused"}},
		{"writes-always", "each sync would create a version", []string{"push.repeated-changes-nothing"}},
		{"overwrites-a-foreign-secret", "with and without adopt", []string{"push.adopting-does-not-take-from-an-owner", "push.adopts-what-has-no-owner", "push.foreign-is-refused"}},
		{"replaces-what-exists", "an existing value must be kept", []string{"push.if-not-exists"}},
		{"deletes-a-foreign-secret", "another owner's secret would be deleted", []string{"delete.foreign-stays"}},
		{"pushes-properties-alone", "the other properties of the secret would be lost", []string{"push.property"}},
		{"deletes-the-whole-for-a-property", "the other properties of the secret would be lost", []string{"delete.property"}},
		{"deletes-once", "a repeated call fails", []string{"delete.repeated-is-no-error"}},
		{"generates-two", "one of them would never be revoked", []string{"generate.repeated-makes-one"}},
		{"keeps-the-value-in-the-state", "the state is stored in the cluster", []string{"generate.state-holds-no-value"}},
		{"cleans-up-once", "a repeated call fails", []string{"cleanup.repeated-is-no-error"}},
		{"cleans-up-with-the-config-alone", "configs may be deleted first", []string{"cleanup.without-config"}},
		{"refuses-unknown-fields", "a newer operator could not call it", []string{"wire.unknown-fields-are-ignored"}},
		{"oversize-answer", "the operator cannot receive it", []string{"wire.answers-keep-the-limit"}},
		{"shares-state-between-calls", "callers would receive each other's secrets", []string{"concurrency.parallel-batches"}},
		{"ignores-the-deadline", "a call after its deadline would continue", []string{"deadline.slow-call-ends"}},
		{"accepts-no-certificate", "any client that can connect would read secrets", []string{"tls.no-client-certificate"}},
		{"accepts-any-authority", "any user can create such a certificate", []string{"tls.expired-certificate", "tls.foreign-authority"}},
		{"accepts-any-client-of-the-authority", "one provider could call another", []string{"tls.another-provider"}},
		{"speaks-tls-1.2", "the protocol requires TLS 1.3", []string{"tls.version-1.2"}},
		{"speaks-plain-text", "secrets would be sent without encryption", []string{"tls.plain-text"}},
		{"exits-without-not-serving", "load balancers would keep sending calls", []string{"lifecycle.health-says-so-first"}},
		{"cuts-calls-short", "an update would fail syncs", []string{"lifecycle.calls-in-flight-end"}},
		{"takes-calls-to-the-end", "it would never exit", []string{"lifecycle.new-calls-are-refused"}},
		{"exits-with-1", "it looks like a crash", []string{"lifecycle.exits-with-status-0"}},
		{"no-error-info", "the error is no evidence about the secret", []string{"errors.have-info"}},
		{"leaks-a-value", "many users can read conditions", []string{"errors.hold-no-value"}},
		{"prints-values", "many users can read logs", []string{"errors.output-holds-no-value"}},
		{"has-no-name", "the operator cannot identify the provider", []string{"identity.info-is-well-formed"}},
		{"serves-a-kind-twice", "the kind cannot be routed", []string{"identity.kinds-are-well-formed"}},
		{"takes-little", "a Secret may be larger", []string{"identity.limits-are-usable"}},
		{"has-no-state", "the operator cannot report the provider's state", []string{"health.status-is-reported"}},
		{"is-not-serving", "no load balancer would send calls", []string{"health.is-served"}},
		{"cluster-stores-authenticate-anywhere", "one tenant could use another tenant's credentials", []string{"context.cluster-store-authenticates-where-it-may"}},
		{"takes-a-store-without-uid", "two callers could be mixed up", []string{"context.is-complete"}},
		{"takes-any-store", "the allowed combinations of namespaces would be unknown", []string{"context.store-kind-is-known"}},
		{"reads-without-a-source", "the log would not name the consuming namespace", []string{"context.use-is-on-behalf-of-a-namespace"}},
		{"ignores-the-generation", "it would use an outdated config", []string{"context.config-generation-is-awaited"}},
		{"takes-any-config", "all its secrets would appear to be missing", []string{"context.config-kind-is-known"}},
		{"finds-all-configs-invalid", "no store would become ready", []string{"validate.valid"}},
		{"changes-its-mind", "the store's condition would flap", []string{"validate.repeated"}},
		{"adds-a-newline", "a password with a newline is a different password", []string{
			"batch.of-the-largest-size", "batch.order-does-not-matter", "concurrency.parallel-batches", "read.value", "revision.unknown",
		}},
		{"quotes-properties", "a password in quotes is a different password", []string{"delete.property", "push.property", "read.metadata", "read.property"}},
		{"leaves-out-a-map-key", "the target would lack a key", []string{"read.map"}},
		{"counts-versions-from-0", "a pinned version would return the next one", []string{"read.version"}},
		{"has-a-new-revision-each-time", "each sync would write", []string{"read.repeated", "revision.known"}},
		{"takes-missing-properties-for-empty", "the target would contain an empty password", []string{"delete.property", "read.missing-property-is-not-found"}},
		{"takes-reads-without-key", "the secret would appear to be missing", []string{"read.key-is-needed"}},
		{"guesses-the-shape", "a newer operator may send an unknown shape", []string{"read.shape-is-needed"}},
		{"loses-the-order", "results would be assigned to other reads", []string{"batch.one-failure-is-alone", "batch.order-does-not-matter"}},
		{"takes-an-id-twice", "the results cannot be assigned to their reads", []string{"batch.ids-are-unique"}},
		{"takes-reads-without-id", "the result cannot be assigned to its read", []string{"batch.ids-are-needed"}},
		{"takes-any-batch", "the reported limit would not be enforced", []string{"batch.over-the-limit-is-refused"}},
		{"leaves-out-the-last", "the secret would appear to be missing", []string{"find.all-that-matches", "find.can-be-cancelled"}},
		{"finds-other-values", "the operator does not read the values again by key", []string{"find.values"}},
		{"ignores-the-expression", "the target would contain all secrets", []string{"find.all-that-matches", "find.name-regexp", "find.nothing", "find.of-the-largest-size"}},
		{"finds-nothing-with-an-error", "an empty result is valid", []string{"find.nothing"}},
		{"takes-bad-expressions-for-texts", "an invalid expression must be an error", []string{"find.regexp-is-checked"}},
		{"refuses-the-largest-find", "exactly max_results secrets are allowed", []string{"find.of-the-largest-size"}},
		{"sees-everything", "a value that should be created once is never created", []string{"delete.removes", "exists.of-a-property", "exists.of-none"}},
		{"sees-nothing", "a value that should be created once is created again", []string{"delete.foreign-stays", "delete.removes", "exists.of-a-property", "exists.of-a-secret"}},
		{"sees-all-properties", "the same applies to a property", []string{"exists.of-a-property"}},
		{"looks-without-key", "the secret would appear to be absent", []string{"exists.key-is-needed"}},
		{"keeps-the-first-value", "the missing write would not be reported", []string{"delete.property", "push.holds", "push.property", "revision.changes-with-the-value"}},
		{"pushes-without-key", "the destination is undefined", []string{"push.key-is-needed"}},
		{"only-says-that-it-deletes", "the secret would never be deleted", []string{"delete.foreign-stays", "delete.property", "delete.removes", "delete.repeated-is-no-error"}},
		{"deletes-without-key", "the object to delete is undefined", []string{"delete.key-is-needed"}},
		{"watches-from-the-start", "the caller cannot see when the watch is established", []string{"watch.is-established"}},
		{"watch-reports-nothing", "each change would wait for the refresh interval", []string{"watch.reports-changes"}},
		{"generates-nothing", "the target would be empty", []string{"generate.another-key-makes-another", "generate.answers"}},
		{"generates-the-same", "revoking one credential would revoke the other", []string{"generate.another-key-makes-another"}},
		{"generates-without-key", "each repetition would create another credential", []string{"generate.idempotency-key-is-needed"}},
		{"cleans-up-never", "credentials would accumulate", []string{"cleanup.repeated-is-no-error", "cleanup.revokes", "cleanup.without-config", "cleanup.without-state"}},
		{"cleans-up-with-state-alone", "the answer with the state may have been lost", []string{"cleanup.without-state"}},
		{"takes-any-request", "a caller could exhaust its memory", []string{"wire.large-request-is-refused"}},
		{"holds-on-to-cancelled-calls", "the provider would stop serving after some cancelled calls", []string{"cancel.provider-serves-on", "lifecycle.calls-in-flight-end"}},
		{"speaks-tls-1.1", "it accepts TLS 1.2 as well", []string{"tls.version-1.1", "tls.version-1.2"}},
		{"refuses-all-after-a-stranger", "any client could make it unavailable", []string{"lifecycle.health-says-so-first", "tls.operator-is-authenticated"}},
		{"has-codes-of-its-own", "the operator cannot handle an unknown code", []string{"errors.codes-are-canonical", "read.missing-version-is-not-found"}},
		{"gives-no-reason", "programs evaluate the reason", []string{"errors.of-reads-have-a-reason", "read.missing-version-is-not-found"}},
	}

	// A test that no fault fails may be one that nothing can fail.
	for _, known := range Tests() {
		if known.Area() != "claims" && !slices.ContainsFunc(tests, func(test struct {
			fault, why string
			want       []string
		}) bool {
			return slices.Contains(test.want, known.ID)
		}) {
			t.Errorf("no fault fails %s", known.ID)
		}
	}

	for _, test := range tests {
		t.Run(test.fault, func(t *testing.T) {
			t.Parallel()

			report := withFault(t, test.fault, test.want)

			if diff := cmp.Diff(test.want, with(report, Fail)); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%s", test.why, diff, failures(report))
			}

			if report.Conformant {
				t.Error("the report says that it conforms")
			}
		})
	}
}

// withFault runs the kit against a reference provider with a fault: in this
// process, unless the tests that it fails are about the connection, the output or
// the end of a process.
func withFault(t *testing.T, fault string, fails []string) Report {
	t.Helper()

	// Deadlines are kept from this one by a server of its own, over TLS.
	if fault == "ignores-the-deadline" || slices.ContainsFunc(fails, ofProcesses) {
		return conform(t, target(fault))
	}

	listener, served := server.NewMemoryListener(), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())

	go func() { served <- newReference(fault).serveOn(ctx, listener, nil) }()

	defer func() {
		cancel()

		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	inMemory := target(fault)
	inMemory.Command = nil

	report, err := Run(t.Context(), inMemory, Options{Dial: listener.DialContext})
	if err != nil {
		t.Fatal(err)
	}

	return report
}

// ofProcesses reports whether a test needs a provider in a process of its own.
func ofProcesses(id string) bool {
	return strings.HasPrefix(id, "tls.") || strings.HasPrefix(id, "lifecycle.") || id == "errors.output-holds-no-value"
}
