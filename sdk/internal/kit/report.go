package kit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// ReportVersion of this package. Within a version fields are only added.
const ReportVersion = "v1alpha1"

// Outcome of a test or a claim.
type Outcome string

const (
	// Pass: it holds.
	Pass Outcome = "pass"
	// Fail: it does not hold.
	Fail Outcome = "fail"
	// Skipped: it does not apply.
	Skipped Outcome = "skipped"
	// NotExercised: it applies, and could not be tried.
	NotExercised Outcome = "not-exercised"
)

// Report has the results of a run, and how to reproduce it. It contains no value.
type Report struct {
	ReportVersion string `json:"reportVersion"`
	// KitVersion and ProtocolVersion are what was tested with and for.
	KitVersion      string `json:"kitVersion"`
	ProtocolVersion string `json:"protocolVersion"`
	// Provider as it calls itself.
	Provider Provider `json:"provider"`
	// Kind of config that was tested, and Profile of the run.
	Kind    Kind    `json:"kind"`
	Profile Profile `json:"profile"`
	// Started and Seconds are when the run was, and how long.
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Conformant means that nothing failed. A test that was not exercised is not
	// covered by it.
	Conformant bool `json:"conformant"`
	// Counts of outcomes.
	Counts Counts `json:"counts"`
	// Claims of the provider, and whether they hold.
	Claims []Claim `json:"claims"`
	// Tests in the order in which they ran.
	Tests []Result `json:"tests"`
	// Reproduce is how to run it again.
	Reproduce Reproduce `json:"reproduce"`
}

// Provider is the provider under test.
type Provider struct {
	Name             string   `json:"name"`
	Version          string   `json:"version"`
	ProtocolVersions []string `json:"protocolVersions"`
}

// Kind of config.
type Kind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Counts of outcomes.
type Counts struct {
	Passed       int `json:"passed"`
	Failed       int `json:"failed"`
	Skipped      int `json:"skipped"`
	NotExercised int `json:"notExercised"`
}

// Claim is a capability, and what its tests came to.
type Claim struct {
	Capability string  `json:"capability"`
	Outcome    Outcome `json:"result"`
	Message    string  `json:"message,omitempty"`
}

// Result of one test.
type Result struct {
	ID         string   `json:"id"`
	Why        string   `json:"why"`
	Outcome    Outcome  `json:"result"`
	Seconds    float64  `json:"seconds"`
	Message    string   `json:"message,omitempty"`
	RequestIDs []string `json:"requestIDs,omitempty"`

	capabilities []pb.Capability
}

// Reproduce is a command line and its input, without values.
type Reproduce struct {
	Command []string `json:"command,omitempty"`
	Target  Target   `json:"target"`
}

func (r Result) line() string {
	text := fmt.Sprintf("%-13s %s", r.Outcome, r.ID)
	if r.Message != "" {
		text += ": " + r.Message
	}

	return text
}

// begin is a report without results.
func (r *run) begin(began time.Time) Report {
	profile := r.target.Profile
	if profile == "" {
		profile = ReadOnly
	}

	return Report{
		ReportVersion: ReportVersion, KitVersion: either(r.options.Version, "unknown"), ProtocolVersion: pb.ProtocolVersion,
		Provider: Provider{Name: r.info.GetName(), Version: r.info.GetVersion(), ProtocolVersions: r.info.GetProtocolVersions()},
		Kind:     Kind{APIVersion: r.kind.GetApiVersion(), Kind: r.kind.GetKind()}, Profile: profile,
		Started: began.UTC().Truncate(time.Second), Tests: []Result{}, Claims: r.claims(),
		Reproduce: Reproduce{Command: r.options.CommandLine, Target: r.target.shown()},
	}
}

// claims are the capabilities that the provider names, without results.
func (r *run) claims() []Claim {
	claims := []Claim{}

	for _, capability := range capabilities() {
		if r.claimed(capability) {
			claims = append(claims, Claim{Capability: short(capability), Outcome: NotExercised})
		}
	}

	return claims
}

// conclude counts the results, and derives those of claims.
func (r *Report) conclude(took time.Duration) {
	r.Seconds = took.Seconds()

	for _, result := range r.Tests {
		switch result.Outcome {
		case Pass:
			r.Counts.Passed++
		case Fail:
			r.Counts.Failed++
		case Skipped:
			r.Counts.Skipped++
		case NotExercised:
			r.Counts.NotExercised++
		}
	}

	r.Conformant = r.Counts.Failed == 0

	for i := range r.Claims {
		r.Claims[i].settle(r.Tests)
	}
}

// settle judges a claim by the tests that need it. Answering at all is not
// enough to be exercised: another test must have looked at an answer.
func (c *Claim) settle(tests []Result) {
	var missing []string

	for _, result := range tests {
		if !slices.ContainsFunc(result.capabilities, func(capability pb.Capability) bool { return short(capability) == c.Capability }) {
			continue
		}

		switch result.Outcome {
		case Fail:
			c.Outcome, c.Message = Fail, "see "+result.ID

			return
		case Pass:
			if !strings.HasPrefix(result.ID, "claims.") && !strings.HasPrefix(result.ID, "context.") {
				c.Outcome = Pass
			}
		case Skipped, NotExercised:
			if !slices.Contains(missing, result.Message) {
				missing = append(missing, result.Message)
			}
		}
	}

	if c.Outcome == NotExercised {
		c.Message = strings.Join(missing, "; ")
	}
}

// Markdown is the report for people.
func (r *Report) Markdown() string {
	var b strings.Builder

	verdict := "conformant"
	if !r.Conformant {
		verdict = "not conformant"
	}

	fmt.Fprintf(&b, "# Conformance of %s %s: %s\n\n", cell(r.Provider.Name), cell(r.Provider.Version), verdict)
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped, %d not exercised, in %.1f s.\n\n", r.Counts.Passed, r.Counts.Failed, r.Counts.Skipped, r.Counts.NotExercised, r.Seconds)
	fmt.Fprintf(&b, "| what | which |\n|---|---|\n| report | %s |\n| kit | %s |\n| protocol | %s |\n| kind | %s, %s |\n| profile | %s |\n| started | %s |\n\n",
		r.ReportVersion, cell(r.KitVersion), r.ProtocolVersion, cell(r.Kind.Kind), cell(r.Kind.APIVersion), r.Profile, r.Started.Format(time.RFC3339))

	b.WriteString("## Claims\n\n| capability | result | |\n|---|---|---|\n")

	for _, claim := range r.Claims {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", claim.Capability, claim.Outcome, cell(claim.Message))
	}

	b.WriteString("\n## Tests\n\n| test | result | s | |\n|---|---|---|---|\n")

	for _, result := range r.Tests {
		text := result.Message
		if result.Outcome == Fail {
			text += " (" + result.Why
			if n := len(result.RequestIDs); n > 0 {
				text += " Last request: " + result.RequestIDs[n-1] + "."
			}

			text += ")"
		}

		fmt.Fprintf(&b, "| %s | %s | %.2f | %s |\n", result.ID, result.Outcome, result.Seconds, cell(text))
	}

	if len(r.Reproduce.Command) > 0 {
		fmt.Fprintf(&b, "\n## Again\n\n    %s\n\nThe JSON report holds the input, without values.\n", strings.Join(r.Reproduce.Command, " "))
	}

	return b.String()
}

// cell makes a text fit for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ").Replace(text)
}
