package render

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
)

func regexpStep(source, target string) esv1.Rewrite {
	return esv1.Rewrite{Regexp: &esv1.RewriteRegexp{Source: source, Target: target}}
}

func transformStep(text string) esv1.Rewrite {
	return esv1.Rewrite{Transform: &esv1.RewriteTransform{Template: text}}
}

func mergeStep(m esv1.RewriteMerge) esv1.Rewrite { return esv1.Rewrite{Merge: &m} }

func rewritten(steps []esv1.Rewrite, values map[string]string) (map[string]string, error) {
	in := map[string][]byte{}
	for key, value := range values {
		in[key] = []byte(value)
	}

	out, err := renderer().entry(plan.Entry{Field: "f", Rewrite: steps}, Value{Map: in})
	if err != nil {
		return nil, err
	}

	got := map[string]string{}
	for key, value := range out {
		got[key] = string(value)
	}

	return got, nil
}

func TestRewrite(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		why   string
		steps []esv1.Rewrite
		in    map[string]string
		want  map[string]string
		err   string
	}{
		{why: "an expression with a group", steps: []esv1.Rewrite{regexpStep("^(.*)/(.*)$", "$2.$1")}, in: map[string]string{"a/b": "1"}, want: map[string]string{"b.a": "1"}},
		{why: "one that does not match changes nothing", steps: []esv1.Rewrite{regexpStep("x", "y")}, in: map[string]string{"a": "1"}, want: map[string]string{"a": "1"}},
		{why: "an empty key is left out", steps: []esv1.Rewrite{regexpStep("^drop.*", "")}, in: map[string]string{"drop1": "1", "drop2": "2", "keep": "3"}, want: map[string]string{"keep": "3"}},
		{why: "two values with the same key are ambiguous", steps: []esv1.Rewrite{regexpStep(".*", "same")}, in: map[string]string{"a": canary, "b": canary}, err: `the keys "a" and "b" both become "same"`},
		{why: "steps are applied in order", steps: []esv1.Rewrite{regexpStep("/", "_"), transformStep("{{ .value | upper }}")}, in: map[string]string{"a/b": "1"}, want: map[string]string{"A_B": "1"}},
		{why: "an invalid key of a Secret is an error", steps: []esv1.Rewrite{transformStep("{{ .value }} ")}, in: map[string]string{"a": canary}, err: "holds the character ' '"},
		{why: "the error of a template contains the key", steps: []esv1.Rewrite{transformStep("{{ .nothing }}")}, in: map[string]string{"a": canary}, err: `f: rewrite[0]: the key "a": template "transform"`},
		{
			why: "merged objects become keys", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{})},
			in:   map[string]string{"x": `{"s":"text","n":1,"big":12345678901234567890,"exp":1e3,"null":null,"t":true,"m":{"a":[1,"<"]}}`},
			want: map[string]string{"s": "text", "n": "1", "big": "12345678901234567890", "exp": "1000", "null": "", "t": "true", "m": `{"a":[1,"\u003c"]}`},
		},
		{why: "two objects with one field contradict each other", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{})}, in: map[string]string{"x": `{"a":"` + canary + `"}`, "y": `{"a":"2"}`}, err: `"a" (in "x" and "y")`},
		{why: "unless that is ignored: the later key wins", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{ConflictPolicy: "Ignore"})}, in: map[string]string{"x": `{"a":"1"}`, "y": `{"a":"2"}`}, want: map[string]string{"a": "2"}},
		{why: "or priority decides: its last wins", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{Priority: []string{"y", "x"}})}, in: map[string]string{"x": `{"a":"1"}`, "y": `{"a":"2"}`, "z": `{"a":"3"}`}, want: map[string]string{"a": "1"}},
		{why: "a key of priority that is not there", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{Priority: []string{"no"}})}, in: map[string]string{"x": `{"a":"1"}`}, err: `priority names the key "no"`},
		{why: "which may be ignored", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{Priority: []string{"no"}, PriorityPolicy: "IgnoreNotFound"})}, in: map[string]string{"x": `{"a":"1"}`}, want: map[string]string{"a": "1"}},
		{why: "strategy JSON keeps what was there", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{Strategy: "JSON", Into: "all"})}, in: map[string]string{"x": `{"b":2}`, "y": `{"a":"1"}`}, want: map[string]string{"x": `{"b":2}`, "y": `{"a":"1"}`, "all": `{"a":"1","b":2}`}},
		{why: "and writes what it holds as it is", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{Strategy: "JSON", Into: "all"})}, in: map[string]string{"x": `{"a":"<&>"}`}, want: map[string]string{"x": `{"a":"<&>"}`, "all": `{"a":"<&>"}`}},
		{why: "what is no object cannot be merged", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{})}, in: map[string]string{"x": canary}, err: `the value of key "x" is no JSON object`},
		{why: "nor is a list", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{})}, in: map[string]string{"x": `["` + canary + `"]`}, err: "no JSON object"},
		{why: "nor null", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{})}, in: map[string]string{"x": `null`}, err: "no JSON object"},
		{why: "nor two objects", steps: []esv1.Rewrite{mergeStep(esv1.RewriteMerge{})}, in: map[string]string{"x": `{}{}`}, err: "no JSON object"},
		{why: "nothing becomes nothing", steps: []esv1.Rewrite{regexpStep("a", "b")}, want: map[string]string{}},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			got, err := rewritten(c.steps, c.in)

			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), canary) {
					t.Errorf("err = %v; want %q, and no value", err, c.err)
				}
			case err != nil:
				t.Error(err)
			default:
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("keys (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// For any secrets and any rewrite there is no panic, no key that is invalid in a
// Secret, and no value in an error.
func FuzzRewrite(f *testing.F) {
	const marker = "4f1c9b-marker"

	f.Add("a/b", `{"a":"1"}`, "/", "_", "{{ .value | upper }}", "x", true)
	f.Add("", `{"n":1e400}`, "(", "$1", "{{", "", false)
	f.Add("k", "null", ".*", "", "{{ .value }}", "k", true)
	f.Fuzz(func(t *testing.T, key, value, source, target, text, priority string, ignore bool) {
		merge := esv1.RewriteMerge{}
		if ignore {
			merge = esv1.RewriteMerge{ConflictPolicy: "Ignore", Priority: []string{priority}, PriorityPolicy: "IgnoreNotFound"}
		}

		for _, steps := range [][]esv1.Rewrite{{regexpStep(source, target)}, {transformStep(text)}, {mergeStep(merge)}, {mergeStep(merge), regexpStep(source, target)}} {
			got, err := rewritten(steps, map[string]string{key: value, "other": `{"a":"` + marker + `"}`})
			if err != nil {
				if strings.Contains(err.Error(), marker) {
					t.Fatalf("the error holds a value: %v", err)
				}

				continue
			}

			for name := range got {
				if validateKey(name) != nil {
					t.Fatalf("%q is no key of a Secret", name)
				}
			}
		}
	})
}
