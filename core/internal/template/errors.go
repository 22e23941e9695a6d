package template

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// fail makes a failure. The arguments must be numbers, or names that stand in
// the template.
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

// position is how text/template begins an error, with the name that all
// templates here have.
var position = regexp.MustCompile(`^template: ` + regexp.QuoteMeta(root) + `:(\d+):`)

// describe makes the error that callers see. An error of text/template quotes
// values, arguments and the template: nothing but its line and its kind is
// taken over.
func describe(name string, err error) error {
	line := 0

	if found := position.FindStringSubmatch(err.Error()); found != nil {
		line, _ = strconv.Atoi(found[1])
	}

	if l, ok := errors.AsType[*located](err); ok {
		line = l.line
	}

	_, running := errors.AsType[template.ExecError](err)
	reason := kind(err.Error(), running)

	if f, ok := errors.AsType[*failure](err); ok {
		reason = f.Error()
	}

	if line == 0 {
		return fmt.Errorf("template %q: %s", name, reason)
	}

	return fmt.Errorf("template %q, line %d: %s", name, line, reason)
}

var (
	unknownFunction = regexp.MustCompile(`function "([^"]*)" not defined$`)
	unknownVariable = regexp.MustCompile(`undefined variable "(\$\w*)"$`)
	wrongNumber     = regexp.MustCompile(`wrong number of args for (\w+):`)
	wrongType       = regexp.MustCompile(`wrong type for value; expected (.+); got (.+)$`)
	calling         = regexp.MustCompile(`error calling (\w+):`)
)

// kind says in words of this package what an error of text/template is about.
// The text of an error of a running template may hold a value in any place,
// which can at most choose another of these sentences: whatever is taken out of
// it is compared with what this package knows. The parser knows no value, and
// the names in its errors are taken as they are.
func kind(text string, running bool) string {
	if found := unknownFunction.FindStringSubmatch(text); found != nil && !running {
		return unavailable(found[1])
	}

	if found := unknownVariable.FindStringSubmatch(text); found != nil && !running {
		return fmt.Sprintf("the variable %q is not declared", found[1])
	}

	if found := wrongNumber.FindStringSubmatch(text); found != nil && isFunction(found[1]) {
		return fmt.Sprintf("function %q: it takes another number of arguments", found[1])
	}

	if found := wrongType.FindStringSubmatch(text); found != nil {
		return fmt.Sprintf("%s is needed where the template gives %s", typeName(found[1]), typeName(found[2]))
	}

	prefix := ""
	if found := calling.FindStringSubmatch(text); found != nil && slices.Contains(builtin(), found[1]) {
		prefix = fmt.Sprintf("function %q: ", found[1])
	}

	for _, s := range sentences() {
		if strings.Contains(text, s.part) {
			return prefix + s.sentence
		}
	}

	return prefix + "this cannot be executed"
}

func isFunction(name string) bool {
	return slices.Contains(builtin(), name) || slices.Contains(allowed(), name) || slices.Contains(own(), name)
}

func unavailable(name string) string {
	for _, r := range refused() {
		if r.name == name {
			return fmt.Sprintf("the function %q is not available: %s", name, r.why)
		}
	}

	return fmt.Sprintf("there is no function %q", name)
}

// typeName is what people call a Go type.
func typeName(name string) string {
	switch name {
	case "string":
		return "text"
	case "int", "int64", "uint32", "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "map[string]interface {}":
		return "a dict"
	case "map[string]string":
		return "a dict of texts"
	case "[]interface {}":
		return "a list"
	case "[]string":
		return "a list of texts"
	case "[]int":
		return "a list of numbers"
	case "[][]interface {}":
		return "a list of lists"
	case "time.Time":
		return "a time"
	case "sprig.certificate":
		return "a certificate of a gen function"
	default:
		return "another type"
	}
}

// sentence says what it means that an error of text/template has a part.
type sentence struct{ part, sentence string }

func sentences() []sentence {
	return []sentence{
		// The parser's.
		{"unclosed action", "an action is not closed"},
		{"unclosed comment", "a comment is not closed"},
		{"comment ends before closing delimiter", "a comment does not end where its action does"},
		{"unclosed left paren", "a parenthesis is not closed"},
		{"unexpected right paren", "a parenthesis is closed that was not opened"},
		{"unterminated", "a quoted text does not end"},
		{"bad number syntax", "a number is not one"},
		{"bad character", "an action has a character that does not belong there"},
		{"unrecognized character", "an action has a character that does not belong there"},
		{"unexpected EOF", "an if, range, with, block or define has no end"},
		{"unexpected {{end}}", "there is an end too many"},
		{"unexpected {{else", "there is an else without an if, range or with"},
		{"missing value for", "a value is missing"},
		{"empty command", "a value is missing"},
		{"non executable command", "a value is piped into what is no function"},
		{"multiple definition of template", "it defines a template twice"},
		{"{{break}} outside", "there is a break outside of a range"},
		{"{{continue}} outside", "there is a continue outside of a range"},
		{"too many declarations", "it declares too many variables in one place"},
		{"range can only initialize variables", "it declares too many variables in one place"},
		{"max expression depth exceeded", "it is nested too deeply"},
		{"expected :=", "a variable is not followed by := or ="},

		// The executor's.
		{"error calling index: cannot index slice/array", "a list is indexed by a number"},
		{"index out of range", "the index is out of range"},
		{"cannot index slice/array", "a list is indexed by a number"},
		{"can't index item", "only lists, dicts and texts have an index"},
		{"index of ", "there is nothing to index"},
		{"value has type", "a dict is indexed by a text"},
		{"len of ", "only lists, dicts and texts have a length"},
		{"invalid type for comparison", "these cannot be compared"},
		{"incompatible types for comparison", "these cannot be compared with each other"},
		{"can't give argument to", "what is no function is given an argument"},
		{"non-function", "it is given what is no function"},
		{"range can't iterate over", "range needs a list, a dict or a number"},
		{"iterate over more than one variable", "range over a number has one variable"},
		{"is not a command", "nil is no value to begin with"},
		{"invalid value; expected", "a value is needed where there is none"},
		{"cannot assign nil", "a value is needed where there is none"},
		{"overflows int", "a number is too large"},
		{"; found ", "an argument has another type than is needed"},
		{"can't handle", "an argument has another type than is needed"},

		// The parser's most general one.
		{"unexpected ", "something stands where it does not belong"},
	}
}
