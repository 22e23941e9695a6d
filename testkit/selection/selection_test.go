package selection

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// workspace is a repository of two modules: app tests with what lib has, reads
// a page of the documentation, and runs a program.
func workspace(t *testing.T) string {
	t.Helper()

	root := t.TempDir()
	for name, text := range map[string]string{
		"go.work":              "go 1.26\n\nuse (\n\t./app\n\t./lib\n)\n",
		"app/go.mod":           "module example.com/app\n\ngo 1.26\n",
		"app/app.go":           "package app\n\nimport \"example.com/lib\"\n\nconst Name = lib.Name\n",
		"app/app_test.go":      "package app\n\nimport (\n\t\"testing\"\n\n\t_ \"example.com/lib/kit\"\n)\n\n//test:inputs docs/**/*.md\n\nfunc TestApp(t *testing.T) {}\n",
		"app/testdata/a/x.txt": "x",
		"app/BUILD.bazel":      "",
		"app/other/other.go":   "package other\n",
		"lib/go.mod":           "module example.com/lib\n\ngo 1.26\n",
		"lib/lib.go":           "package lib\n\nconst Name = \"lib\"\n",
		"lib/lib_test.go":      "package lib\n\nimport \"testing\"\n\nfunc TestLib(t *testing.T) {}\n",
		"lib/kit/kit.go":       "// Package kit starts a program.\n//\n//test:programs lib/cmd/*\npackage kit\n",
		"lib/cmd/run/main.go":  "package main\n\nimport _ \"example.com/lib/deep\"\n\nfunc main() {}\n",
		"lib/deep/deep.go":     "package deep\n",
		"docs/page.md":         "page",
		"docs/more/page.md":    "page",
		"docs/more/page.txt":   "page",
	} {
		write(t, root, name, text)
	}

	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()

	file := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// load returns the tests of a workspace by folder.
func load(t *testing.T, root, build string) map[string]Test {
	t.Helper()

	tests, err := Load(t.Context(), Options{Root: root, Patterns: []string{"./app/...", "./lib/..."}, Build: build})
	if err != nil {
		t.Fatal(err)
	}

	byFolder := map[string]Test{}
	for _, test := range tests {
		byFolder[test.Folder] = test
	}

	return byFolder
}

func TestAHashChangesWithEachInputAndWithNothingElse(t *testing.T) {
	t.Setenv("GOWORK", "")
	t.Setenv("GOFLAGS", "-mod=readonly")

	root := workspace(t)
	before := load(t, root, "go")

	if len(before) != 2 || len(before["app"].Key) != 64 || before["app"].Path != "example.com/app" {
		t.Fatalf("tests: %+v", before)
	}

	for _, c := range []struct {
		why, file, text string
		app, lib        bool
	}{
		{why: "nothing has changed"},
		{why: "its own source", file: "app/app.go", text: "package app\n", app: true},
		{why: "its own test", file: "app/app_test.go", text: "package app\n\nimport \"testing\"\n\nfunc TestOther(t *testing.T) {}\n", app: true},
		{why: "a package of another module that it imports", file: "lib/lib.go", text: "package lib\n\nconst Name = \"other\"\n", app: true, lib: true},
		{why: "a test of another package", file: "lib/lib_test.go", text: "package lib\n", lib: true},
		{why: "a package of its module that it does not import", file: "app/other/other.go", text: "package other\n\nconst X = 1\n"},
		{why: "test data, in any folder", file: "app/testdata/a/y.txt", text: "y", app: true},
		{why: "a file of its own folder that is no Go file", file: "app/values.yaml", text: "a: b", app: true},
		{why: "BUILD files are for Bazel", file: "app/BUILD.bazel", text: "# other\n"},
		{why: "a file that it declares, in a folder of folders", file: "docs/more/page.md", text: "other", app: true},
		{why: "a file that comes to match what it declares", file: "docs/new.md", text: "new", app: true},
		{why: "a file that it does not declare", file: "docs/more/page.txt", text: "other"},
		{why: "a program that a package declares which only its test imports", file: "lib/cmd/run/main.go", text: "package main\n\nfunc main() { println() }\n", app: true},
		{why: "what such a program imports", file: "lib/deep/deep.go", text: "package deep\n\nconst X = 1\n", app: true},
	} {
		t.Run(c.why, func(t *testing.T) {
			if c.file != "" {
				name := filepath.Join(root, filepath.FromSlash(c.file))
				was, err := os.ReadFile(name)
				write(t, root, c.file, c.text)

				defer func() {
					if err != nil {
						_ = os.Remove(name)
					} else {
						write(t, root, c.file, string(was))
					}
				}()
			}

			after := load(t, root, "go")
			if changed := after["app"].Key != before["app"].Key; changed != c.app {
				t.Errorf("the hash of app changed: %t", changed)
			}

			if lib, ok := after["lib"]; ok && (lib.Key != before["lib"].Key) != c.lib {
				t.Errorf("the hash of lib changed: %t", !c.lib)
			}
		})
	}

	if load(t, root, "go race")["app"].Key == before["app"].Key {
		t.Error("tests that passed with other flags are taken for the same")
	}

	if test := before["app"]; !test.DependsOn("example.com/lib/kit") || test.DependsOn("example.com/lib/deep") {
		t.Error("a program's imports are taken for those of the test, or a test's own are lost")
	}
}

func TestDeclarationsThatNameNothingAreRefused(t *testing.T) {
	t.Setenv("GOWORK", "")

	for directive, want := range map[string]string{
		"//test:inputs docs/*.yaml":   `no file matches "docs/*.yaml"`,
		"//test:programs lib/cmd/not": `no folder matches "lib/cmd/not"`,
	} {
		root := workspace(t)
		write(t, root, "app/more_test.go", "package app\n\n"+directive+"\n")

		_, err := Load(t.Context(), Options{Root: root, Patterns: []string{"./app/..."}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "example.com/app") {
			t.Errorf("%s: %v", directive, err)
		}
	}
}

func TestUndeclaredFilesAreFound(t *testing.T) {
	t.Setenv("GOWORK", "")

	root := workspace(t)
	test := load(t, root, "")["app"]
	log := strings.Join([]string{
		"# test log", "getenv HOME", "open testdata/a/x.txt", "open ../docs/page.md", "open ../docs/more/page.txt", "open /etc/passwd", "open ../docs",
		"stat ../lib/lib_test.go", "open absent.txt", "chdir ../lib", "open lib_test.go", "open " + filepath.Join(root, "go.work"),
	}, "\n") + "\n"

	got := Undeclared(root, filepath.Join(root, "app"), test, []byte(log))
	if diff := cmp.Diff([]string{"docs/more/page.txt", "lib/lib_test.go"}, got); diff != "" {
		t.Errorf("undeclared files (-want +got):\n%s", diff)
	}
}

func TestRecordsOutliveTheProcessAndAreForgottenAfterAMonth(t *testing.T) {
	t.Parallel()

	dir, test := t.TempDir(), Test{Path: "example.com/app", Folder: "a/b", Key: strings.Repeat("a", 64)}
	other := Test{Key: strings.Repeat("b", 64)}
	left := t.TempDir()
	write(t, left, "rights.json", "{}")

	records := func() *Records {
		t.Helper()

		r, err := OpenRecordsIn(dir)
		if err != nil {
			t.Fatal(err)
		}

		return r
	}

	if err := records().Add(test, left); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		test Test
		want bool
	}{{test, true}, {other, false}} {
		if passed, err := records().Passed(c.test); err != nil || passed != c.want {
			t.Errorf("passed %t, %v", passed, err)
		}
	}

	if err := records().Remove(other); err != nil {
		t.Errorf("a record that does not exist cannot be removed: %v", err)
	}

	below := t.TempDir()
	if err := records().Output(test, below); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(below, "a-b", "rights.json")); err != nil {
		t.Errorf("what the test has left is lost: %v", err)
	}

	old := time.Now().Add(-kept - time.Hour)
	for _, name := range []string{test.Key, test.Key + outputSuffix} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}

	if passed, err := records().Passed(test); err != nil || passed {
		t.Errorf("an old record: %t, %v", passed, err)
	}

	if err := errors.Join(records().Add(test, left), records().Remove(test)); err != nil {
		t.Fatal(err)
	}

	if passed, err := records().Passed(test); err != nil || passed {
		t.Errorf("a record that was removed: %t, %v", passed, err)
	}
}

func TestPatternsMatchElements(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"docs/*.md", "docs/a.md", true},
		{"docs/*.md", "docs/a/b.md", false},
		{"docs/**/*.md", "docs/a.md", true},
		{"docs/**/*.md", "docs/a/b/c.md", true},
		{"**/*_test.go", "a_test.go", true},
		{"api/**", "api/a/b", true},
		{"api/**", "apis/a", false},
		{"providers/*/cmd/*", "providers/vault/cmd/provider-vault", true},
		{"providers/*/cmd/*", "providers/vault/cmd", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%s matches %s: %t", c.pattern, c.name, got)
		}
	}
}
