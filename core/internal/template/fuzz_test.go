package template

import (
	"strings"
	"testing"
	"time"
)

// FuzzRender looks for a template and a value that take long, make much, end
// the process, or get the value into an error.
func FuzzRender(f *testing.F) {
	for _, c := range calls() {
		f.Add(c.text, "value")
	}

	f.Add("{{ .value.nope }}", "a value that no error may hold")
	f.Add("{{ fail .value }}", "a value that no error may hold")
	f.Add("{{ range .value }}{{ end }}", "a value that no error may hold")

	const maxOutput = 1 << 16

	e := New(Options{MaxOutput: maxOutput, Timeout: 100 * time.Millisecond})

	f.Fuzz(func(t *testing.T, text, value string) {
		start := time.Now()
		out, err := e.Render("k", text, map[string]string{"value": value, "number": "42"})

		// A large key is the longest call, on a machine with other things to do.
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("rendering took %s", took)
		}

		if len(out) > maxOutput {
			t.Errorf("%d bytes of output", len(out))
		}

		// A short value, or one that the template has, may be in the error by
		// accident.
		if err != nil && len(value) > 16 && !strings.Contains(text, value) && strings.Contains(err.Error(), value) && !ours(value) {
			t.Errorf("the error holds the value: %v", err)
		}

		if err := e.Check("k", text); err != nil && out != nil {
			t.Errorf("it renders, but Check says %v", err)
		}
	})
}

// ours says whether a value is a part of this package's own words.
func ours(value string) bool {
	for _, s := range sentences() {
		if strings.Contains(s.sentence, value) {
			return true
		}
	}

	return false
}
