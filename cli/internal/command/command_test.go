package command

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// now is in the middle of a day, and no full hour.
func now() time.Time { return time.Date(2026, 1, 2, 12, 30, 0, 0, time.UTC) }

// run runs esoctl in this folder.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()

	var out, err bytes.Buffer

	code = Main(t.Context(), Environment{
		Args: args, In: strings.NewReader(stdin), Out: &out, Err: &err, Now: now, Version: "1.2.3", Commit: "abc",
	})

	return code, out.String(), err.String()
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()

	file := filepath.Join("testdata", name+".golden")

	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}

		return
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestRender(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, why string
		args      []string
		code      int
	}{
		{"data", "single keys: property, path, version, metadata, bytes, several stores", nil, exitDone},
		{"extract", "every key of a secret, and who wins", nil, exitDone},
		{"find", "several secrets, by path, name and tags", nil, exitDone},
		{"rewrite", "keys that are rewritten, and objects that are merged", nil, exitDone},
		{"template", "templates of data and metadata, in place of what was fetched and beside it", nil, exitDone},
		{
			"templatefrom", "templates of other files, of the right namespace, with the operator's delimiters",
			[]string{
				"--configmap", "testdata/render/templates.yaml", "--secret", "testdata/render/hidden.yaml",
				"--template-left-delimiter", "<<", "--template-right-delimiter", ">>",
			}, exitDone,
		},
		{"manifest", "targets that are no Secrets", nil, exitDone},
		{"deletion", "what is absent, under each policy; the rest is rendered all the same", nil, exitFailed},
		{"creation", "a target that is not made, or by others", nil, exitDone},
		{"errors", "each error names file, object and field, and the object after it is rendered", nil, exitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			args := append([]string{"render", "-f", "testdata/render/" + c.name + ".yaml", "--values", "testdata/render/values.yaml"}, c.args...)

			code, out, err := run(t, "", args...)
			if code != c.code {
				t.Errorf("%s: exit code %d, not %d", c.why, code, c.code)
			}

			golden(t, "render/"+c.name, "# standard error:\n# "+strings.ReplaceAll(strings.TrimSpace(err), "\n", "\n# ")+"\n"+out)
		})
	}
}

func TestRenderInOtherWays(t *testing.T) {
	t.Parallel()

	const values = "testdata/render/values.yaml"

	t.Run("hidden values are nowhere, in a template's labels neither", func(t *testing.T) {
		t.Parallel()

		var all strings.Builder

		for _, file := range []string{"template", "manifest"} {
			code, out, err := run(t, "", "render", "-f", "testdata/render/"+file+".yaml", "--values", values, "--hide-values")
			if code != exitDone {
				t.Errorf("exit code %d: %s", code, err)
			}

			all.WriteString(out + err)
		}

		for _, value := range []string{"s3cret", "5432", "app\n"} {
			if strings.Contains(all.String(), value) {
				t.Errorf("it shows %q:\n%s", value, all.String())
			}
		}

		golden(t, "render/hide-values", all.String())
	})

	t.Run("one object as JSON, several as a List", func(t *testing.T) {
		t.Parallel()

		var all strings.Builder

		for _, file := range []string{"extract", "find"} {
			code, out, err := run(t, "", "render", "-f", "testdata/render/"+file+".yaml", "--values", values, "-o", "json")
			if code != exitDone {
				t.Errorf("exit code %d: %s", code, err)
			}

			all.WriteString(out)
		}

		golden(t, "render/json", all.String())
	})

	t.Run("what kubectl prints is read from the standard input, with templates beside it", func(t *testing.T) {
		t.Parallel()

		code, out, err := run(t, `{"apiVersion":"v1","kind":"List","items":[
			{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"t":"{{ .a }}!"}},
			{"apiVersion":"external-secrets.io/v1","kind":"ExternalSecret","metadata":{"name":"app","uid":"u"},"spec":{
				"secretStoreRef":{"name":"store"},"data":[{"secretKey":"a","remoteRef":{"key":"encoded"}}],
				"target":{"template":{"templateFrom":[{"configMap":{"name":"c","items":[{"key":"t"}]}}]}}},"status":{"refreshTime":null}}]}`,
			"render", "-f", "-", "--values", values)
		if code != exitDone || !strings.Contains(out, "t: aGVsbG8=!") {
			t.Errorf("exit code %d: %s%s", code, out, err)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()

	const (
		data   = "testdata/render/data.yaml"
		values = "testdata/render/values.yaml"
	)

	for _, c := range []struct {
		why  string
		args []string
		code int
		want string
	}{
		{"no such command", []string{"rendr"}, exitUsage, `no command "rendr"`},
		{"no such flag", []string{"render", "--file", "x"}, exitUsage, "unknown flag: --file"},
		{"no file", []string{"render", "--values", values}, exitUsage, "--filename is missing"},
		{"no values", []string{"render", "-f", data}, exitUsage, "--values is missing"},
		{"an argument that stands for nothing", []string{"render", data}, exitUsage, "one argument too many"},
		{"no such format", []string{"render", "-f", data, "--values", values, "-o", "xml"}, exitUsage, `--output is "xml"`},
		{"two readers of one input", []string{"render", "-f", "-", "--values", "-"}, exitUsage, "once only"},
		{"delimiters that are alike", []string{"render", "-f", data, "--values", values, "--template-left-delimiter", "}}"}, exitUsage, "are empty or equal"},
		{"a file that is not there", []string{"render", "-f", "nowhere.yaml", "--values", values}, exitFailed, "cannot read nowhere.yaml"},
		{"a file without an ExternalSecret", []string{"render", "-f", "testdata/render/noes.yaml", "--values", values}, exitFailed, "no ExternalSecret in testdata/render/noes.yaml"},
		{"a field that is misspelt is not ignored", []string{"render", "-f", "testdata/render/typo.yaml", "--values", values}, exitFailed, `cannot read testdata/render/typo.yaml: document 1: ExternalSecret "typo": unknown field "spec.data[0].remoteRef.propety"`},
		{"an older version of the kind", []string{"render", "-f", "testdata/render/old.yaml", "--values", values}, exitFailed, `ExternalSecret "old" is of external-secrets.io/v1beta1: set its apiVersion to external-secrets.io/v1`},
		{"a file of templates without one", []string{"render", "-f", data, "--values", values, "--configmap", "testdata/render/hidden.yaml"}, exitFailed, "there is no ConfigMap in it"},
		{"a number, which YAML may have changed", []string{"render", "-f", data, "--values", "testdata/render/number.yaml"}, exitFailed, `cannot read testdata/render/number.yaml: store SecretStore/store: key "db": it is neither a text nor a map: put it in quotes`},
		{"a kind that is no store's", []string{"render", "-f", data, "--values", "testdata/render/kind.yaml"}, exitFailed, `store "Store/store": name it SecretStore/<name>`},
		{"a version without a value", []string{"render", "-f", data, "--values", "testdata/render/novalue.yaml"}, exitFailed, `key "db": [0]: set one of value and binary`},
		{"a key that stands there twice", []string{"render", "-f", data, "--values", "testdata/render/twice.yaml"}, exitFailed, `key "a" already set in map`},
		{"nothing to explain", []string{"explain"}, exitUsage, "is missing"},
		{"a file of no cluster", []string{"explain", data, "--context", "x"}, exitUsage, "leave out --kubeconfig and --context"},
		{"a cluster that cannot be reached", []string{"explain", "app", "--kubeconfig", "nowhere"}, exitFailed, "cannot reach a cluster"},
		{"no such format of an explanation", []string{"explain", data, "-o", "yaml"}, exitUsage, `--output is "yaml"`},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			code, out, err := run(t, "", c.args...)
			if code != c.code || !strings.Contains(err, c.want) || out != "" {
				t.Errorf("exit code %d, standard output %q, standard error %s", code, out, err)
			}
		})
	}
}

func TestExplainFile(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name, why string
		args      []string
	}{
		{"everything", "reads that are one, searches, templates, several stores, windows that are closed", nil},
		{"policies", "each policy in words, windows that deny, targets that are no Secrets", nil},
		{"problems", "all that is wrong, at once", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			for _, format := range []string{"text", "json"} {
				code, out, err := run(t, "", "explain", "testdata/explain/"+c.name+".yaml", "-o", format)
				if code != exitDone || err != "" {
					t.Errorf("%s: exit code %d: %s", c.why, code, err)
				}

				golden(t, "explain/"+c.name+"."+format, out)
			}
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()

	if code, out, _ := run(t, "", "version"); code != exitDone || out != "1.2.3 (abc)\n" {
		t.Errorf("exit code %d: %q", code, out)
	}

	for _, args := range [][]string{nil, {"--help"}, {"render", "--help"}, {"explain", "-h"}, {"help", "render"}} {
		if code, out, err := run(t, "", args...); code != exitDone || !strings.Contains(out, "Exit codes: 0") {
			t.Errorf("%q: exit code %d: %s%s", args, code, out, err)
		}
	}
}
