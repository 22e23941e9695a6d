package template

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
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

// ours reports whether a value is a part of this package's own words.
func ours(value string) bool {
	return strings.Contains(causeSyntax, value) || strings.Contains(causeExecute, value)
}

// FuzzCalls looks for the same with templates that are made of calls: bytes
// that change at random seldom get past the parser.
func FuzzCalls(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}

	const (
		maxOutput = 1 << 16
		value     = canary + " \x00 \xff {{ 1 }}"
	)

	e := New(Options{MaxOutput: maxOutput, Timeout: 100 * time.Millisecond})
	names := slices.Sorted(maps.Keys(e.functions))

	f.Fuzz(func(t *testing.T, seed uint64) {
		w := &writer{names: names, functions: e.functions, random: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // the same seed is the same template
		text := w.template()
		start := time.Now()
		out, err := e.Render("k", text, map[string]string{"value": value})

		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("rendering took %s: %s", took, text)
		}

		if len(out) > maxOutput {
			t.Errorf("%d bytes of output: %s", len(out), text)
		}

		if err != nil && leaks(err) {
			t.Errorf("the error holds the value: %v: %s", err, text)
		}
	})
}

// writer writes templates.
type writer struct {
	names     []string
	functions map[string]*function
	random    *rand.Rand
}

func (w *writer) one(of ...string) string { return of[w.random.IntN(len(of))] }

func (w *writer) template() string {
	var text strings.Builder

	text.WriteString(`{{ $x := .value }}{{ $l := list .value 1 }}{{ $d := dict "a" $l "b" dict }}`)

	for range 1 + w.random.IntN(6) {
		call := "(" + w.call(3) + ")"

		switch w.random.IntN(8) {
		case 0:
			text.WriteString("{{ range " + w.one("3", "50", "100000", "$l", "$d", call) + " }}{{ $x = " + call + " }}{{ end }}")
		case 1:
			text.WriteString("{{ range 60 }}{{ $l = list $l " + w.one("$l", "$d", call) + " }}{{ end }}")
		case 2:
			text.WriteString("{{ $_ := set $d " + w.one(`"a"`, `"b"`, ".value") + " " + w.one("$l", "$x", "$d.b", call) + " }}")
		case 3:
			text.WriteString("{{ $x = " + call + " }}")
		case 4:
			text.WriteString("{{ $x = " + call + w.one(".a", ".b.a", ".Cert", ".Key", ".Format .value", ".Original", ".UTC", ".Add 1") + " }}")
		default:
			text.WriteString("{{ " + call + " }}")
		}
	}

	return text.String()
}

func (w *writer) call(depth int) string { return w.callOf(reflect.Interface, depth) }

// callOf a function whose result mostly is of a kind.
func (w *writer) callOf(kind reflect.Kind, depth int) string {
	name := ""
	for range 20 {
		name = w.names[w.random.IntN(len(w.names))]
		if kind == reflect.Interface || reflect.TypeOf(w.functions[name].call).Out(0).Kind() == kind {
			break
		}
	}

	typ := reflect.TypeOf(w.functions[name].call)
	n := typ.NumIn()

	if typ.IsVariadic() {
		n += w.random.IntN(4) - 1
	}

	words := []string{name}

	for i := range n {
		in := typ.In(min(i, typ.NumIn()-1))
		if typ.IsVariadic() && i >= typ.NumIn()-1 {
			in = in.Elem()
		}

		words = append(words, w.argument(in.Kind(), depth-1))
	}

	return strings.Join(words, " ")
}

func (w *writer) argument(kind reflect.Kind, depth int) string {
	if depth > 0 && w.random.IntN(3) == 0 {
		return "(" + w.callOf(kind, depth) + ")"
	}

	texts := []string{
		".value", `""`, `"a"`, `"a\nb c"`, `"%s%[1]*[1]d%v%#v%x"`, `"(x*y|x)*"`, `"1.2.3"`, `"https://u:p@h/p"`, `"2006-01-02"`, `"{\"a\":[1,null]}"`,
		`"-1"`, `"1e400"`, `"rsa"`, `"ed25519"`, `(repeat 3000 .value)`, `(repeat 100000 "x")`, `(b64enc .value)`, `(genPrivateKey "ecdsa")`,
	}
	numbers := []string{"0", "1", "-1", "2", "7", "70000", "-9223372036854775808", "9223372036854775807"}
	lists := []string{"$l", "list", "(list $x nil 1.5)", "(until 3000)", "(list $l $d)", `(splitList "" .value)`}
	dicts := []string{"$d", "dict", "(dict .value $d)", `(fromJson "{\"a\":{\"b\":[1]}}")`, "$d.b"}

	switch kind {
	case reflect.String:
		return w.one(texts...)
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Float64:
		return w.one(numbers...)
	case reflect.Slice:
		return w.one(lists...)
	case reflect.Map:
		return w.one(dicts...)
	case reflect.Bool:
		return w.one("true", "false")
	case reflect.Struct:
		return w.one("now", `(genCAWithKey "x" 1 (genPrivateKey "ecdsa"))`)
	default:
		return w.one(slices.Concat(texts, numbers, lists, dicts, []string{"nil", "now", "true", `(semver "1.2.3")`, "1.5", "."})...)
	}
}
