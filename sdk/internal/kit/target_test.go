package kit

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

const validTarget = `
address: 127.0.0.1:8443
tls: {caFile: ca.crt, caKeyFile: ca.key}
config: {apiVersion: provider.example.com/v1, kind: Memory, namespace: team-a, name: backend, uid: u}
`

func load(t *testing.T, text string) (Target, error) {
	t.Helper()

	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return Load(file)
}

// The error of an invalid target names the field and what to do.
func TestLoadExplains(t *testing.T) {
	t.Parallel()

	const config = "\nconfig: {apiVersion: v1, kind: K, namespace: team-a, name: b, uid: u}"

	for _, test := range []struct{ name, why, text, want string }{
		{"no YAML", "the file is named", "a: b: c", "target.yaml"},
		{"a key twice", "the second would count without a word", validTarget + "config: {}\n", `"config" already set`},
		{"an unknown field", "a misspelt fixture would be left out without a word", validTarget + "fixtures: {missingkey: x}\n", `unknown field "fixtures.missingkey"`},
		{"another type", "the field is named", validTarget + "fixtures: {secrets: x}\n", "fixtures.secrets"},
		{"half an address", "likewise", "address: localhost\ntls: {caFile: a, caKeyFile: b}" + config, "address: address localhost: missing port"},
		{"a relative socket", "the base directory would be unknown", "address: unix://run.sock" + config, "absolute path"},
		{"a socket with TLS", "it has none", "address: unix:///run/p.sock\ntls: {caFile: a, caKeyFile: b}" + config, "tls: a unix socket has none"},
		{"no TLS", "plain text is never meant", "address: 127.0.0.1:1" + config, "tls: is missing"},
		{"two ways to be the operator", "one of them would be ignored", "address: 127.0.0.1:1\ntls: {caFile: a, caKeyFile: b, certFile: c, keyFile: d}" + config, "either caKeyFile"},
		{"half a certificate", "the other half would be missed later", "address: 127.0.0.1:1\ntls: {caFile: a, certFile: c}" + config, "tls: certFile and keyFile belong together"},
		{"a folder that stays empty", "the provider would not start, and not say why", "command: {args: [x, \"{tlsDir}\"]}\ntls: {caFile: a, certFile: c, keyFile: d}" + config, "command: {tlsDir}"},
		{"an empty command", "nothing could be started", "command: {args: []}" + config, "command.args: is empty"},
		{"no config", "each missing part is named", "command: {args: [x]}", "config.uid: is missing"},
		{"a profile", "what is meant is never guessed", validTarget + "profile: write\n", `profile: "write" is neither`},
		{"a store's kind", "likewise", validTarget + "store: {kind: Store, name: s, uid: u}\n", `store.kind: "Store"`},
		{"a secret without a key", "it could not be read", validTarget + "fixtures: {secrets: [{value: x}]}\n", "fixtures.secrets[0].key: is missing"},
		{"two values", "either could be meant", validTarget + "fixtures: {secrets: [{key: k, value: x, binary: eA==}]}\n", "give one of value, binary and valueFile"},
		{"a file that is not there", "the field is named", validTarget + "fixtures: {secrets: [{key: k, valueFile: none}]}\n", "fixtures.secrets[0].valueFile"},
		{"a search that finds nothing", "it would prove nothing", validTarget + "fixtures: {find: [{nameRegexp: x}]}\n", "fixtures.find[0].keys: is empty"},
		{"no prefix", "the kit would write anywhere", validTarget + "fixtures: {write: {unowned: x}}\n", "fixtures.write.prefix: is missing"},
		{"a slow config without a key", "nothing could be read with it", validTarget + "fixtures: {slow: {config: {apiVersion: v1, kind: K, namespace: team-a, name: b, uid: u}}}\n", "fixtures.slow.key: is missing"},
		{"what cannot be absent", "a kind has it with every store", validTarget + "absent: {Read: it cannot}\n", `absent: "Read" cannot be absent`},
		{"absent without a reason", "the report would not say why", validTarget + "absent: {Watch: ''}\n", "absent.Watch: is empty"},
		{"a duration", "it is a text with a unit", "command: {args: [x], stopTimeout: 5}" + config, "30s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			_, err := load(t, test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: err = %v; want %q", test.why, err, test.want)
			}
		})
	}
}

// The examples of the documentation are targets.
func TestDocumentedTargets(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "conformance.md"))
	if err != nil {
		t.Skip("the documentation is not there: ", err)
	}

	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(examples) != 3 {
		t.Errorf("%d examples", len(examples))
	}

	// The objects that one of them names.
	dir := t.TempDir()
	objects := "apiVersion: provider.example.com/v1\nkind: Example\nmetadata: {namespace: team-a, name: backend}\n"

	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, example := range examples {
		file := filepath.Join(dir, "target.yaml")
		if err := os.WriteFile(file, []byte(example[1]), 0o600); err != nil {
			t.Fatal(err)
		}

		if _, err := Load(file); err != nil {
			t.Error(err)
		}
	}

	// Each area has its line.
	for _, test := range Tests() {
		if !strings.Contains(string(text), "`"+test.Area()+"`") {
			t.Errorf("the documentation does not know the area of %s", test.ID)
		}
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()

	for name, text := range map[string]string{
		"value": "from-a-file", "token": "the-credential\n",
		"target.yaml": validTarget + `
profile: full
command: {args: [./provider], stopTimeout: 5s}
fixtures:
  credentialFiles: [token]
  secrets: [{key: a, valueFile: value}]
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	target, err := Load(filepath.Join(dir, "target.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	if got, _ := target.Fixtures.Secrets[0].whole(); string(got) != "from-a-file" {
		t.Error("the value's file was not read")
	}

	if got := target.TLS.CAFile; got != filepath.Join(dir, "ca.crt") {
		t.Errorf("tls.caFile is %q, not beside the target", got)
	}

	if got := target.Command.Args[0]; got != filepath.Join(dir, "provider") {
		t.Errorf("the program is %q, not beside the target", got)
	}

	if got := target.canaries(); !slices.Contains(got, "from-a-file") || !slices.Contains(got, "the-credential") {
		t.Errorf("%d canaries, not the value and the credential", len(got))
	}

	if time.Duration(target.Command.StopTimeout) != 5*time.Second {
		t.Errorf("stopTimeout is %v", target.Command.StopTimeout)
	}
}

// A report contains no secrets.
func TestReportHoldsNoValue(t *testing.T) {
	t.Parallel()

	tested := target("leaks-a-value")
	tested.Command.Env = append(tested.Command.Env, "TOKEN=the-credential")

	report, err := Run(t.Context(), tested, Options{Only: regexp.MustCompile(`^(read|errors|push|generate)\.`), CommandLine: []string{"provider-conformance", "target.yaml"}})
	if err != nil {
		t.Fatal(err)
	}

	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}

	both := string(text) + report.Markdown()
	for _, value := range append(tested.canaries(), "the-credential", "conformance-value-", "generated-") {
		// Bytes are not part of a text.
		if strings.Contains(both, value) && !strings.Contains(value, "\x00") {
			t.Errorf("the report holds a value: %q", value)
		}
	}

	for _, part := range []string{`"reportVersion":"v1alpha1"`, `"name":"reference"`, `"id":"read.value"`, `"prefix":"pushed/"`, `"requestIDs"`, `"TOKEN=(not shown)"`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the JSON report lacks %s", part)
		}
	}

	for _, part := range []string{"# Conformance of reference 1.0.0: not conformant", "| errors.hold-no-value | fail |", "    provider-conformance target.yaml"} {
		if !strings.Contains(report.Markdown(), part) {
			t.Errorf("the Markdown report lacks %q", part)
		}
	}

	for _, result := range report.Tests {
		if strings.HasPrefix(result.ID, "find.") {
			t.Errorf("%s ran, and was not selected", result.ID)
		}
	}
}

// What a run leaves out it says, and why.
func TestLeftOut(t *testing.T) {
	t.Parallel()

	of := func(report Report, id string) Result {
		at := slices.IndexFunc(report.Tests, func(r Result) bool { return r.ID == id })
		if at < 0 {
			t.Fatalf("there is no test %s", id)
		}

		return report.Tests[at]
	}

	t.Run("read-only", func(t *testing.T) {
		t.Parallel()

		tested := target("")
		tested.Profile = ReadOnly
		report := conform(t, tested)

		if got := of(report, "push.holds"); got.Outcome != Skipped || !strings.Contains(got.Message, "read-only") {
			t.Errorf("push.holds: %s", got.line())
		}

		for _, claim := range report.Claims {
			if want := claim.Capability == "READ" || claim.Capability == "FIND" || claim.Capability == "EXISTS" || claim.Capability == "WATCH"; want != (claim.Outcome == Pass) {
				t.Errorf("the claim of %s: %s (%s)", claim.Capability, claim.Outcome, claim.Message)
			}
		}
	})

	t.Run("a store that cannot watch", func(t *testing.T) {
		t.Parallel()

		const reason = "this backend does not report changes"

		for _, test := range []struct {
			fault, why string
			conformant bool
			checked    Outcome
		}{
			{"cannot-watch", "it answers UNIMPLEMENTED, as required", true, Pass},
			{"", "the target says that it cannot, and it does", false, Fail},
		} {
			tested := target(test.fault)
			tested.Absent = map[string]string{"Watch": reason}
			report := conform(t, tested)

			if report.Conformant != test.conformant || report.Counts.NotExercised != 3 {
				t.Errorf("%s: %+v\n%s", test.why, report.Counts, failures(report))
			}

			if got := of(report, "claims.watch-absent-is-unimplemented"); got.Outcome != test.checked {
				t.Errorf("%s: %s", test.why, got.line())
			}

			for _, id := range []string{"claims.watch-is-served", "watch.is-established", "watch.reports-changes"} {
				if got := of(report, id); got.Outcome != NotExercised || !strings.Contains(got.Message, reason) {
					t.Errorf("%s: %s", test.why, got.line())
				}
			}

			for _, claim := range report.Claims {
				want := Pass
				if claim.Capability == "WATCH" {
					want = map[bool]Outcome{true: NotExercised, false: Fail}[test.conformant]
				}

				if claim.Outcome != want {
					t.Errorf("%s: the claim of %s: %s (%s)", test.why, claim.Capability, claim.Outcome, claim.Message)
				}
			}

			if report.Reproduce.Target.Absent["Watch"] != reason {
				t.Errorf("%s: the report lacks the target's text", test.why)
			}
		}

		tested := target("")
		tested.Config, tested.Fixtures = *config("Token", "token"), Fixtures{Generator: &Generation{}}
		tested.Absent = map[string]string{"Watch": reason}

		if _, err := Run(t.Context(), tested, Options{}); err == nil || !strings.Contains(err.Error(), "absent.Watch") {
			t.Errorf("absent from a kind that does not claim it: %v", err)
		}
	})

	t.Run("a generator's kind", func(t *testing.T) {
		t.Parallel()

		tested := target("")
		tested.Config, tested.Fixtures = *config("Token", "token"), Fixtures{Generator: &Generation{}}
		report := conform(t, tested)

		if !report.Conformant {
			t.Errorf("it does not conform:\n%s", failures(report))
		}

		if got := of(report, "validate.valid"); got.Outcome != Skipped || !strings.Contains(got.Message, "is a generator") {
			t.Errorf("validate.valid: %s", got.line())
		}

		for _, claim := range report.Claims {
			if claim.Outcome != Pass || (claim.Capability != "GENERATE" && claim.Capability != "CLEANUP") {
				t.Errorf("the claim of %s: %s (%s)", claim.Capability, claim.Outcome, claim.Message)
			}
		}
	})

	t.Run("without fixtures", func(t *testing.T) {
		t.Parallel()

		tested := target("")
		tested.Fixtures = Fixtures{}
		report := conform(t, tested)

		if !report.Conformant {
			t.Errorf("it does not conform:\n%s", failures(report))
		}

		if got := of(report, "push.holds"); got.Outcome != NotExercised || got.Message != "give fixtures.write.prefix" {
			t.Errorf("push.holds: %s", got.line())
		}

		for _, claim := range report.Claims {
			if claim.Capability == "PUSH" && (claim.Outcome != NotExercised || !strings.Contains(claim.Message, "fixtures.write.prefix")) {
				t.Errorf("the claim of PUSH: %s (%s)", claim.Outcome, claim.Message)
			}
		}
	})
}

// However the kit reaches a provider, the tests are the same.
func TestEndpoints(t *testing.T) {
	t.Parallel()

	t.Run("over a socket", func(t *testing.T) {
		t.Parallel()

		// A socket's path is short.
		dir, err := os.MkdirTemp("", "kit") //nolint:usetesting // t.TempDir is too long for a socket's path
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)

		tested := target("")
		tested.Address = "unix://" + filepath.Join(dir, "p.sock")
		report := conform(t, tested)

		if !report.Conformant || report.Counts.NotExercised > 0 {
			t.Errorf("it does not conform:\n%s", failures(report))
		}

		if got := with(report, Skipped); !slices.Contains(got, "tls.plain-text") || slices.Contains(got, "deadline.slow-call-ends") {
			t.Errorf("skipped: %v", got)
		}
	})

	t.Run("one that runs already", func(t *testing.T) {
		t.Parallel()

		dir := t.TempDir()

		ca, err := newAuthority("throw-away")
		if err != nil {
			t.Fatal(err)
		}

		own, err := ca.issue(leaf{name: "operator", uri: pb.OperatorIdentity, client: true})
		if err != nil {
			t.Fatal(err)
		}

		if err := ca.write(dir, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}

		for name, text := range map[string][]byte{"operator.crt": own.certificatePEM, "operator.key": own.keyPEM} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		first := target("")
		first.Address, err = freeAddress()

		if err != nil {
			t.Fatal(err)
		}

		starter := &run{target: first, options: Options{Output: os.Stderr}, pki: nil}
		starter.target.Command.Args = []string{first.Command.Args[0], "--listen={address}", "--tls-dir=" + dir}

		if err := starter.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer starter.process.stop()

		second := target("")
		second.Address, second.Command = first.Address, nil
		second.TLS = &TLS{CAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "operator.crt"), KeyFile: filepath.Join(dir, "operator.key")}

		var report Report

		for range 100 {
			if report, err = Run(t.Context(), second, Options{}); err == nil {
				break
			}

			time.Sleep(20 * time.Millisecond)
		}

		if err != nil || !report.Conformant {
			t.Fatalf("it does not conform: %v\n%s", err, failures(report))
		}

		want := []string{
			"errors.output-holds-no-value", "lifecycle.calls-in-flight-end", "lifecycle.exits-with-status-0", "lifecycle.health-says-so-first",
			"lifecycle.new-calls-are-refused", "tls.another-provider", "tls.expired-certificate",
		}
		if diff := cmp.Diff(want, with(report, NotExercised)); diff != "" {
			t.Errorf("not exercised (-want +got):\n%s", diff)
		}
	})
}

// The kit asks for the protocol, and for nothing that only gRPC for Go does.
func TestAnotherLanguage(t *testing.T) {
	t.Parallel()

	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node: ", err)
	}

	text := func(s string) *string { return &s }
	report := conform(t, Target{
		Command: &Command{Args: []string{node, filepath.Join("testdata", "provider.mjs"), "--listen={address}", "--tls-dir={tlsDir}"}},
		Config:  *config("Memory", "backend"),
		Fixtures: Fixtures{
			Secrets: []Secret{
				{
					Key: "db", Value: text(`{"password":"db-password-1","user":"db-user-1"}`), Properties: map[string]string{"password": "db-password-1"},
					MissingProperty: "nothing", Map: map[string]string{"password": "db-password-1", "user": "db-user-1"},
				},
				{Key: "text", Value: text("a-plain-text")},
			},
			MissingKey: "nothing", InvalidConfig: config("Memory", "invalid"), Slow: &Slow{Config: *config("Memory", "slow"), Key: "db"},
		},
	})

	if !report.Conformant || report.Counts.Passed < 60 {
		t.Errorf("it does not conform, or little was tested: %+v\n%s", report.Counts, failures(report))
	}

	// Of what a read may ask for it has no versions, no metadata and no bytes.
	if diff := cmp.Diff([]string{"read.binary", "read.metadata", "read.missing-version-is-not-found", "read.version"}, with(report, NotExercised)); diff != "" {
		t.Errorf("not exercised (-want +got):\n%s", diff)
	}
}

// Without a provider there is nothing to report.
func TestRunFails(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, why, want string
		change          func(*Target)
	}{
		{"no such program", "the field is named", "command.args", func(t *Target) { t.Command.Args = []string{"/does/not/exist"} }},
		{"it ends at once", "the error refers to its output", "it exited before it served", func(t *Target) { t.Command.Args = append(t.Command.Args, "--listen=nonsense") }},
		{"another kind", "the provider's answer is reported", "does not serve it", func(t *Target) { t.Config.Kind = "Other" }},
		{"no listener", "the address is named", "cannot get info of the provider", func(t *Target) { t.Command, t.Address = nil, "unix:///does/not/exist" }},
		{"no authority", "the field is named", "tls.caFile", func(t *Target) { t.TLS = &TLS{CAFile: "/does/not/exist", CAKeyFile: "/neither"} }},
		{"not usable", "the library checks what Load does", "config.uid", func(t *Target) { t.Config.UID = "" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			tested := target("")
			test.change(&tested)

			_, err := Run(t.Context(), tested, Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: err = %v; want %q", test.why, err, test.want)
			}
		})
	}
}

// Reports are compared by id, for years.
func TestTestsAreWellFormed(t *testing.T) {
	t.Parallel()

	form, seen := regexp.MustCompile(`^[a-z]+\.[a-z0-9.-]+$`), map[string]bool{}

	for _, test := range Tests() {
		if !form.MatchString(test.ID) || seen[test.ID] {
			t.Errorf("%q is no id, or there twice", test.ID)
		}

		if !strings.HasSuffix(test.Why, ".") || test.Run == nil {
			t.Errorf("%s says in no sentence why it is there, or does nothing", test.ID)
		}

		seen[test.ID] = true
	}
}

// Only a run can check whether the provider is in this process.
func TestRunNeedsAnAddress(t *testing.T) {
	t.Parallel()

	tested := Target{Config: *config("Memory", "backend")}

	if _, err := Run(t.Context(), tested, Options{}); err == nil || !strings.Contains(err.Error(), "address: is missing; give host:port") {
		t.Errorf("without an address: %v", err)
	}

	tested.Address = "127.0.0.1:1"

	dial := func(context.Context) (net.Conn, error) { return nil, errors.New("not called") }
	if _, err := Run(t.Context(), tested, Options{Dial: dial}); err == nil || !strings.Contains(err.Error(), "the provider is in this process") {
		t.Errorf("with an address and Dial: %v", err)
	}
}
