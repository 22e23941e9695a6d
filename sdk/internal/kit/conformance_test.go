package kit

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
		{"has-no-name", "nobody could be told who it is", []string{"identity.info-is-well-formed"}},
		{"serves-a-kind-twice", "it cannot be routed", []string{"identity.kinds-are-well-formed"}},
		{"takes-little", "a Secret holds more", []string{"identity.limits-are-usable"}},
		{"has-no-state", "nobody could be told how it is", []string{"health.status-is-reported"}},
		{"is-not-serving", "no balancer would call it", []string{"health.is-served"}},
		{"lets-cluster-stores-authenticate-anywhere", "one tenant uses another's credentials", []string{"context.cluster-store-authenticates-where-it-may"}},
		{"takes-a-store-without-uid", "two callers become one", []string{"context.is-complete"}},
		{"takes-any-store", "nobody knows which namespaces may stand together", []string{"context.store-kind-is-known"}},
		{"reads-on-nobodys-behalf", "a log says nothing of it", []string{"context.use-is-on-behalf-of-a-namespace"}},
		{"ignores-the-generation", "it reads by an older config", []string{"context.config-generation-is-awaited"}},
		{"takes-any-config", "its secrets are all missing", []string{"context.config-kind-is-known"}},
		{"finds-all-configs-invalid", "no store is ever ready", []string{"validate.valid"}},
		{"changes-its-mind", "a store flaps", []string{"validate.repeated"}},
		{"adds-a-newline", "a password with one is another password", []string{
			"batch.of-the-largest-size", "batch.order-does-not-matter", "concurrency.parallel-batches", "read.value", "revision.unknown",
		}},
		{"quotes-properties", "a password in quotes is another password", []string{"delete.property", "push.property", "read.metadata", "read.property"}},
		{"leaves-out-a-map-key", "a target lacks it", []string{"read.map"}},
		{"counts-versions-from-0", "who pins a version gets the next", []string{"read.version"}},
		{"has-a-new-revision-each-time", "each sync writes", []string{"read.repeated", "revision.known"}},
		{"takes-missing-properties-for-empty", "a target gets an empty password", []string{"delete.property", "read.missing-property-is-not-found"}},
		{"takes-reads-without-key", "it looks like a secret that is gone", []string{"read.key-is-needed"}},
		{"guesses-the-shape", "of a newer operator, perhaps", []string{"read.shape-is-needed"}},
		{"loses-the-order", "answers go to other questions", []string{"batch.one-failure-is-alone", "batch.order-does-not-matter"}},
		{"takes-an-id-twice", "nobody knows whose answer is which", []string{"batch.ids-are-unique"}},
		{"takes-reads-without-id", "likewise", []string{"batch.ids-are-needed"}},
		{"takes-any-batch", "the limit that it names is none", []string{"batch.over-the-limit-is-refused"}},
		{"leaves-out-the-last", "it looks gone", []string{"find.all-that-matches", "find.can-be-cancelled"}},
		{"finds-other-values", "a find is not read once more by key", []string{"find.values"}},
		{"ignores-the-expression", "a target gets all there is", []string{"find.all-that-matches", "find.name-regexp", "find.nothing", "find.of-the-largest-size"}},
		{"finds-nothing-with-an-error", "nothing is an answer", []string{"find.nothing"}},
		{"takes-bad-expressions-for-texts", "a mistake looks like an answer", []string{"find.regexp-is-checked"}},
		{"refuses-the-largest-find", "as many as asked for are not too many", []string{"find.of-the-largest-size"}},
		{"sees-everything", "what should be made once is never made", []string{"delete.removes", "exists.of-a-property", "exists.of-none"}},
		{"sees-nothing", "what should be made once is made again", []string{"delete.foreign-stays", "delete.removes", "exists.of-a-property", "exists.of-a-secret"}},
		{"sees-all-properties", "likewise for a part", []string{"exists.of-a-property"}},
		{"looks-without-key", "it looks absent", []string{"exists.key-is-needed"}},
		{"keeps-the-first-value", "nobody hears that nothing was written", []string{"delete.property", "push.holds", "push.property", "revision.changes-with-the-value"}},
		{"pushes-without-key", "it ends who knows where", []string{"push.key-is-needed"}},
		{"only-says-that-it-deletes", "a secret stays for ever", []string{"delete.foreign-stays", "delete.property", "delete.removes", "delete.repeated-is-no-error"}},
		{"deletes-without-key", "it deletes who knows what", []string{"delete.key-is-needed"}},
		{"watches-from-the-start", "nobody knows when it stands", []string{"watch.is-established"}},
		{"watches-in-silence", "each change waits for the interval", []string{"watch.reports-changes"}},
		{"generates-nothing", "a target would be empty", []string{"generate.another-key-makes-another", "generate.answers"}},
		{"generates-the-same", "revoking one takes the other along", []string{"generate.another-key-makes-another"}},
		{"generates-without-key", "each repetition makes another", []string{"generate.idempotency-key-is-needed"}},
		{"cleans-up-never", "credentials pile up", []string{"cleanup.repeated-is-no-error", "cleanup.revokes", "cleanup.without-config", "cleanup.without-state"}},
		{"cleans-up-with-state-alone", "an answer may have been lost", []string{"cleanup.without-state"}},
		{"takes-any-request", "anybody fills its memory", []string{"wire.large-request-is-refused"}},
		{"holds-on-to-cancelled-calls", "after some it serves nobody", []string{"cancel.provider-serves-on", "lifecycle.calls-in-flight-end"}},
		{"speaks-tls-1.1", "it speaks 1.2 as well", []string{"tls.version-1.1", "tls.version-1.2"}},
		{"locks-everybody-out-after-a-stranger", "anybody could stop it", []string{"lifecycle.health-says-so-first", "tls.operator-is-authenticated"}},
		{"has-codes-of-its-own", "nobody knows what to do about it", []string{"errors.codes-are-canonical", "read.missing-version-is-not-found"}},
		{"gives-no-reason", "machines decide by it", []string{"errors.of-reads-have-a-reason", "read.missing-version-is-not-found"}},
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

	type outcome struct {
		report Report
		err    error
	}

	// Runs wait more than they work: some more at a time than there are
	// processors, as go test would have it.
	free, outcomes := make(chan struct{}, 6), make([]chan outcome, len(tests))

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
