package template

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"text/template"
)

// failure is an error whose text may be shown: it holds names out of the
// template and words of this package.
type failure struct{ function, reason string }

// Error names the function.
func (f *failure) Error() string {
	if f.function == "" {
		return f.reason
	}

	return fmt.Sprintf("function %q: %s", f.function, f.reason)
}

// fail returns a failure. The arguments must be numbers, or names that are part
// of the template.
func fail(format string, args ...any) error {
	return &failure{reason: fmt.Sprintf(format, args...)}
}

// located is a failure that is found before the template runs.
type located struct {
	line int
	err  error
}

// Error is the failure's text.
func (l *located) Error() string { return l.err.Error() }

// Unwrap is the failure.
func (l *located) Unwrap() error { return l.err }

// position is the location that begins an error of text/template, with the name
// that all templates here have. text/template offers the line in no other way.
var position = regexp.MustCompile(`^template: ` + regexp.QuoteMeta(root) + `:(\d+):`)

// Causes of errors of text/template. Its errors quote values, arguments and the
// template, and their wording is not an interface: only the line is taken from
// them.
const (
	causeSyntax  = "syntax error, such as an incomplete action or block, or an undeclared variable"
	causeExecute = "it cannot be executed: an argument is missing or has the wrong type, or a value cannot be used here"
)

// describe returns the error that callers see: the template's name, the line and
// the cause, and no value.
func describe(name string, err error) error {
	line := 0

	if found := position.FindStringSubmatch(err.Error()); found != nil {
		line, _ = strconv.Atoi(found[1])
	}

	if l, ok := errors.AsType[*located](err); ok {
		line = l.line
	}

	cause := causeSyntax
	if _, ok := errors.AsType[template.ExecError](err); ok {
		cause = causeExecute
	}

	if f, ok := errors.AsType[*failure](err); ok {
		cause = f.Error()
	}

	if line == 0 {
		return fmt.Errorf("template %q: %s", name, cause)
	}

	return fmt.Errorf("template %q, line %d: %s", name, line, cause)
}

// unavailable is the cause of a call of a function that templates do not have.
func unavailable(name string) string {
	for _, r := range refused() {
		if r.name == name {
			return fmt.Sprintf("the function %q is not available: %s", name, r.why)
		}
	}

	return fmt.Sprintf("there is no function %q", name)
}
