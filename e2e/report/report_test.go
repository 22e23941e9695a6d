package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/external-secrets/eso/e2e/measure"
)

func sample() *Report {
	s := &Scenario{Name: "sync", Conditions: "Some objects."}
	s.Figure("objects", 2000, "")
	s.Duration("wall time", 12345*time.Millisecond)
	s.Duration("latency", 1500*time.Microsecond)
	s.Tables = append(s.Tables, Table{Title: "Processes", Columns: []string{"process", "CPU"}, Rows: [][]string{{"a|b", "1 s"}, {"two\nlines", "2 s"}}})
	s.AtLeast("share of the limit", 59.5, 60, "%")
	s.AtMost("peak", 119.94, 120, "MiB")

	return &Report{
		Machine:   measure.Machine{OS: "linux/amd64", Cores: 2, Memory: 3 << 29, GoVersion: "go1.26"},
		Began:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)),
		Scenarios: []*Scenario{s},
	}
}

func TestMarkdown(t *testing.T) {
	const head = `# Benchmark of 2026-01-02 02:04 UTC

2 cores (unknown CPU), 1.50 GiB of memory, linux/amd64, go1.26.

## sync

Some objects.

| figure | value |
|---|---:|
| objects | 2000 |
| wall time | 12.3 s |
| latency | 1.50 ms |

Processes:

| process | CPU |
|---|---:|
| a\|b | 1 s |
| two lines | 2 s |
`

	const verdicts = `
| target | measured | verdict |
|---|---:|---:|
| share of the limit: at least 60 % | 59.5 % | **FAIL** |
| peak: at most 120 MiB | 120 MiB | PASS |
`

	if diff := cmp.Diff(head+verdicts, sample().Markdown(true)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	if diff := cmp.Diff(head, sample().Markdown(false)); diff != "" {
		t.Errorf("without verdicts: -want +got:\n%s", diff)
	}

	broken := sample()
	broken.Scenarios[0].Error = errors.New("waited too long").Error()

	if diff := cmp.Diff(head+"\n**It ended early:** waited too long\n", broken.Markdown(false)); diff != "" {
		t.Errorf("that ended early: -want +got:\n%s", diff)
	}
}

func TestPassed(t *testing.T) {
	for _, c := range []struct {
		why              string
		scenario         Scenario
		passed, complete bool
	}{
		{"nothing to judge", Scenario{}, true, true},
		{"all targets met", Scenario{Verdicts: []Verdict{{Pass: true}, {Pass: true}}}, true, true},
		{"one target missed", Scenario{Verdicts: []Verdict{{Pass: true}, {}}}, false, true},
		{"ended early, all targets met until then", Scenario{Error: "no", Verdicts: []Verdict{{Pass: true}}}, false, false},
	} {
		r := &Report{Scenarios: []*Scenario{{}, &c.scenario}}
		if got := r.Passed(); got != c.passed {
			t.Errorf("%s: passed is %t", c.why, got)
		}

		if got := r.Complete(); got != c.complete {
			t.Errorf("%s: complete is %t", c.why, got)
		}
	}
}

func TestJSON(t *testing.T) {
	var written bytes.Buffer
	if err := sample().WriteJSON(&written); err != nil {
		t.Fatal(err)
	}

	got := &Report{}
	if err := json.Unmarshal(written.Bytes(), got); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNumber(t *testing.T) {
	for want, value := range map[string]float64{
		"0": 0, "7": 7, "2000": 2000, "0.12": 0.123, "9.99": 9.99, "12.3": 12.345, "-12.3": -12.345, "123": 123.456,
	} {
		if got := Number(value); got != want {
			t.Errorf("%v is written as %s, want %s", value, got, want)
		}
	}
}
