package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/external-secrets/eso/e2e/measure"
)

// Report of a run.
type Report struct {
	Machine   measure.Machine `json:"machine"`
	Began     time.Time       `json:"began"`
	Scenarios []*Scenario     `json:"scenarios"`
}

// Scenario is what one scenario found.
type Scenario struct {
	Name string `json:"name"`
	// Conditions in which it was measured, in one sentence.
	Conditions string    `json:"conditions"`
	Figures    []Figure  `json:"figures"`
	Tables     []Table   `json:"tables,omitempty"`
	Verdicts   []Verdict `json:"verdicts,omitempty"`
	// Error that ended the scenario early; what was measured until then stays.
	Error string `json:"error,omitempty"`
}

// Figure is one number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// Table holds figures that belong together. The first column names the rows.
type Table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// Verdict compares a figure with its target.
type Verdict struct {
	// Target in words, such as "at most 120 MiB at the peak of the operator".
	Target string `json:"target"`
	// Got is what was measured, with its unit.
	Got  string `json:"got"`
	Pass bool   `json:"pass"`
}

// Figure adds a number.
func (s *Scenario) Figure(name string, value float64, unit string) {
	s.Figures = append(s.Figures, Figure{Name: name, Value: value, Unit: unit})
}

// Duration adds a time.
func (s *Scenario) Duration(name string, value time.Duration) {
	if value < time.Second {
		s.Figure(name, float64(value)/float64(time.Millisecond), "ms")
	} else {
		s.Figure(name, value.Seconds(), "s")
	}
}

// AtMost judges a figure that must not exceed its target.
func (s *Scenario) AtMost(what string, got, target float64, unit string) {
	s.judge("at most", what, got, target, unit, got <= target)
}

// AtLeast judges a figure that must reach its target.
func (s *Scenario) AtLeast(what string, got, target float64, unit string) {
	s.judge("at least", what, got, target, unit, got >= target)
}

func (s *Scenario) judge(relation, what string, got, target float64, unit string, pass bool) {
	s.Verdicts = append(s.Verdicts, Verdict{
		Target: what + ": " + relation + " " + withUnit(target, unit), Got: withUnit(got, unit), Pass: pass,
	})
}

// Passed reports whether every scenario ran to its end and met its targets.
func (r *Report) Passed() bool {
	for _, s := range r.Scenarios {
		if s.Error != "" {
			return false
		}

		for _, verdict := range s.Verdicts {
			if !verdict.Pass {
				return false
			}
		}
	}

	return true
}

// Complete reports whether every scenario ran to its end.
func (r *Report) Complete() bool {
	for _, s := range r.Scenarios {
		if s.Error != "" {
			return false
		}
	}

	return true
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")

	return encoder.Encode(r)
}

// Markdown is the report for people; the verdicts are left out unless they are
// wanted.
func (r *Report) Markdown(verdicts bool) string {
	var text strings.Builder

	text.WriteString(r.Heading())

	for _, s := range r.Scenarios {
		text.WriteString("\n" + s.Markdown(verdicts))
	}

	return text.String()
}

// Heading of the report in Markdown, before the first scenario.
func (r *Report) Heading() string {
	return fmt.Sprintf("# Benchmark of %s\n\n%s\n", r.Began.UTC().Format("2006-01-02 15:04 UTC"), machine(r.Machine))
}

func machine(m measure.Machine) string {
	cpu := m.CPU
	if cpu == "" {
		cpu = "unknown CPU"
	}

	return fmt.Sprintf("%d cores (%s), %s of memory, %s, %s.", m.Cores, cpu, withUnit(float64(m.Memory)/(1<<30), "GiB"), m.OS, m.GoVersion)
}

// Markdown of one scenario.
func (s *Scenario) Markdown(verdicts bool) string {
	var text strings.Builder

	fmt.Fprintf(&text, "## %s\n\n%s\n", s.Name, s.Conditions)

	if len(s.Figures) > 0 {
		figures := Table{Columns: []string{"figure", "value"}}
		for _, f := range s.Figures {
			figures.Rows = append(figures.Rows, []string{f.Name, withUnit(f.Value, f.Unit)})
		}

		text.WriteString("\n" + figures.Markdown())
	}

	for _, table := range s.Tables {
		text.WriteString("\n" + table.Markdown())
	}

	if verdicts && len(s.Verdicts) > 0 {
		judged := Table{Columns: []string{"target", "measured", "verdict"}}
		for _, v := range s.Verdicts {
			judged.Rows = append(judged.Rows, []string{v.Target, v.Got, map[bool]string{true: "PASS", false: "**FAIL**"}[v.Pass]})
		}

		text.WriteString("\n" + judged.Markdown())
	}

	if s.Error != "" {
		fmt.Fprintf(&text, "\n**It ended early:** %s\n", s.Error)
	}

	return text.String()
}

// Markdown of a table; numbers are aligned to the right.
func (t Table) Markdown() string {
	var text strings.Builder

	if t.Title != "" {
		fmt.Fprintf(&text, "%s:\n\n", t.Title)
	}

	line := func(cells []string) {
		text.WriteByte('|')

		for _, cell := range cells {
			text.WriteString(" " + escape(cell) + " |")
		}

		text.WriteByte('\n')
	}

	line(t.Columns)
	text.WriteByte('|')

	for i := range t.Columns {
		if i == 0 {
			text.WriteString("---|")
		} else {
			text.WriteString("---:|")
		}
	}

	text.WriteByte('\n')

	for _, row := range t.Rows {
		line(row)
	}

	return text.String()
}

// escape keeps a cell's text in its cell.
func escape(cell string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
}

// Number writes a number as short as its size allows.
func Number(value float64) string {
	switch size := max(value, -value); {
	case value == float64(int64(value)):
		return strconv.FormatInt(int64(value), 10)
	case size >= 100:
		return fmt.Sprintf("%.0f", value)
	case size >= 10:
		return fmt.Sprintf("%.1f", value)
	default:
		return fmt.Sprintf("%.2f", value)
	}
}

func withUnit(value float64, unit string) string {
	if unit == "" {
		return Number(value)
	}

	return Number(value) + " " + unit
}
