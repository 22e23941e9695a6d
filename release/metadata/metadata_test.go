package metadata

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const valid = `
name: acme
title: Acme
stability: alpha
kinds:
- name: Acme
  capabilities: [Read, Exists]
authentication: [token]
testedWith: [Acme 1.2]
owners: ["@acme"]
`

// acme makes a repository with one provider.
func acme(t *testing.T, text string, below ...string) (root, dir string) {
	t.Helper()

	root = t.TempDir()
	dir = filepath.Join(append(append([]string{root, "providers"}, below...), "acme")...)

	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{
		filepath.Join(dir, File): text, filepath.Join(dir, "go.mod"): "module acme\n",
		filepath.Join(dir, "README.md"):   "# Acme\n" + begin + "old\n" + end + "tail\n",
		filepath.Join(root, "CODEOWNERS"): "* @all\n" + ownersLine + "/providers/gone/ @gone\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.MkdirAll(filepath.Join(root, "docs"), 0o750); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(root, "docs", "providers.md"), []byte("# Providers\n"+begin+end), 0o600); err != nil {
		t.Fatal(err)
	}

	return root, dir
}

func TestLoadExplains(t *testing.T) {
	for _, test := range []struct{ name, why, text, want string }{
		{"a misspelt field", "it would be left out without a word", valid + "owner: x\n", `unknown field "owner"`},
		{"another name", "paths are guessed by it", strings.Replace(valid, "name: acme", "name: other", 1), "is not that of the folder"},
		{"no such stability", "", strings.Replace(valid, "alpha", "good", 1), "none of alpha, beta and stable"},
		{"no such capability", "", strings.Replace(valid, "Exists", "Watching", 1), `"Watching" is none of`},
		{"capabilities in another order", "they are compared with the provider's", strings.Replace(valid, "Read, Exists", "Exists, Read", 1), "not in this order"},
		{"no kinds", "", strings.Replace(valid, "kinds:\n- name: Acme\n  capabilities: [Read, Exists]", "kinds: []", 1), "kinds: is empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, dir := acme(t, test.text)

			if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.why, err, test.want)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	root, dir := acme(t, valid)

	// Twice is once.
	for range 2 {
		if err := Write(root); err != nil {
			t.Fatal(err)
		}
	}

	for file, want := range map[string]string{
		filepath.Join(dir, "README.md"): "# Acme\n" + begin + "| | |\n|---|---|\n| stability | alpha |\n| kinds | `Acme` of `provider.secretstore.external-secrets.io/v2alpha1` |\n" +
			"| capabilities | Read, Exists |\n| authentication | token |\n| tested with | Acme 1.2 |\n" + end + "tail\n",
		filepath.Join(root, "CODEOWNERS"): "* @all\n" + ownersLine + "/providers/acme/ @acme\n",
		filepath.Join(root, "docs", "providers.md"): "# Providers\n" + begin +
			"| provider | kinds | capabilities | authentication | tested with | stability |\n|---|---|---|---|---|---|\n" +
			"| [Acme](../providers/acme) | `Acme` | Read, Exists | token | Acme 1.2 | alpha |\n" + end,
	} {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			t.Fatal(err)
		}

		if string(text) != want {
			t.Errorf("%s:\n%s\nwant\n%s", filepath.Base(file), text, want)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("# Acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := Write(root); err == nil || !strings.Contains(err.Error(), "providers/acme/README.md has no line") {
		t.Errorf("a README without a place for the table: %v", err)
	}
}

// A provider of the community goes when its folder does: nothing else names it.
func TestCommunityIsNamedNowhereElse(t *testing.T) {
	root, dir := acme(t, valid, "community")
	if err := Write(root); err != nil {
		t.Fatal(err)
	}

	for file, want := range map[string]bool{filepath.Join(dir, "README.md"): true, filepath.Join(root, "CODEOWNERS"): false, filepath.Join(root, "docs", "providers.md"): false} {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			t.Fatal(err)
		}

		if got := strings.Contains(string(text), "Acme 1.2") || strings.Contains(string(text), "@acme"); got != want {
			t.Errorf("%s:\n%s", file, text)
		}
	}
}
