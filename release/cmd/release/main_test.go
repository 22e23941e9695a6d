package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"good/go.work":             "use ./api\n",
		"good/api/go.mod":          "module github.com/external-secrets/eso/api\n",
		"good/api/CHANGELOG.md":    "",
		"good/release/trains.yaml": `modules: [{path: api, version: "0.1.0", tagPrefix: api/}]`,
		"bad/go.work":              "use ./api\n",
		"bad/api/go.mod":           "module github.com/external-secrets/eso/api\n",
		"bad/release/trains.yaml":  `modules: [{path: core, version: "0.1.0", tagPrefix: core/}]`,
		"empty/go.work":            "",
	} {
		write(t, filepath.Join(root, name), content)
	}

	for _, test := range []struct {
		why, dir  string
		args      []string
		out, fail string
		usage     bool
	}{
		{why: "the version is for bug reports", args: []string{"--version"}, out: "release 0.0.0-dev (unknown)"},
		{why: "nothing is done by default", usage: true},
		{why: "an unknown command is no check that passed", args: []string{"chekc"}, usage: true},
		{why: "an unknown flag changes nothing silently", args: []string{"--dry-run", "check"}, usage: true},
		{why: "it works from any folder of the repository", dir: "good/api", args: []string{"check"}, out: "1 modules agree"},
		{why: "every problem is shown at once", dir: "bad", args: []string{"check"}, fail: "3 problems"},
		{why: "without trains there is nothing to compare with", dir: "empty", args: []string{"check"}, fail: "cannot read the release trains"},
		{why: "without git there is no last release", dir: "good/api", args: []string{"status"}, fail: "cannot find the last release of api"},
	} {
		t.Run(test.why, func(t *testing.T) {
			t.Chdir(filepath.Join(root, test.dir))
			t.Setenv("GIT_CEILING_DIRECTORIES", root)
			var stdout, stderr bytes.Buffer
			err := run(t.Context(), test.args, &stdout, &stderr)
			if errors.Is(err, errUsage) != test.usage {
				t.Fatalf("run() = %v, usage wanted: %t", err, test.usage)
			}
			if test.usage {
				if !strings.Contains(stderr.String(), "usage: release") {
					t.Errorf("stderr = %q, want the usage", &stderr)
				}
				return
			}
			if (err != nil) != (test.fail != "") || err != nil && !strings.Contains(err.Error(), test.fail) {
				t.Errorf("run() = %v, want %q", err, test.fail)
			}
			if !strings.Contains(stdout.String(), test.out) {
				t.Errorf("stdout = %q, want %q in it", &stdout, test.out)
			}
		})
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
