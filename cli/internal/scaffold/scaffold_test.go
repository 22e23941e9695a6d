package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clone makes what of a clone Create looks for.
func clone(t *testing.T) string {
	t.Helper()

	root := t.TempDir()

	for _, module := range []string{"api", "sdk"} {
		if err := os.MkdirAll(filepath.Join(root, module), 0o750); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(root, module, "go.mod"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return root
}

func TestPlan(t *testing.T) {
	root := clone(t)

	for _, test := range []struct {
		name, why string
		options   Options
		want      string
	}{
		{"no name", "it names everything", Options{Root: root}, "is no name of a provider"},
		{"capital letters", "it becomes a DNS label", Options{Root: root, Name: "Acme"}, "is no name of a provider"},
		{"a path", "it would be made elsewhere", Options{Root: root, Name: "../acme"}, "is no name of a provider"},
		{"a hyphen at the end", "it becomes a DNS label", Options{Root: root, Name: "acme-"}, "is no name of a provider"},
		{"a kind of small letters", "Kubernetes would refuse it", Options{Root: root, Name: "acme", Kind: "acme"}, "is no kind"},
		{"no clone", "its api and sdk are used", Options{Root: t.TempDir(), Name: "acme"}, "--root names one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, _, err := plan(test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.why, err, test.want)
			}
		})
	}

	v, dir, err := plan(Options{Root: root, Name: "acme-vault"})
	if err != nil {
		t.Fatal(err)
	}

	if v.Kind != "AcmeVault" || v.Plural != "acmevaults" || v.Root != "../../.." || dir != filepath.Join(root, "providers", "community", "acme-vault") {
		t.Errorf("plan: %+v in %s", v, dir)
	}
}

// Work of days may stand there.
func TestCreateLeavesWhatIsThere(t *testing.T) {
	root := clone(t)
	dir := filepath.Join(root, "providers", "community", "acme")

	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}

	if _, err := Create(t.Context(), Options{Root: root, Name: "acme"}); err == nil || !strings.Contains(err.Error(), "it exists") {
		t.Errorf("%v", err)
	}

	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// Every placeholder is filled in, and no file is left out.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	if err := write(values{Name: "acme-vault", Kind: "AcmeVault", Singular: "acmevault", Plural: "acmevaults", Module: "example.com/acme", Root: "../.."}, dir); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{
		"go.mod", "metadata.yaml", "README.md", "CHANGELOG.md", "api/v2alpha1/acme_vault_types.go", "api/v2alpha1/zz_generated.deepcopy.go",
		"cmd/provider-acme-vault/main.go", "store/provider.go", "store/store.go", "config/rbac.yaml", "conformance/conformance_test.go", "conformance/target.yaml",
		"crds/provider.secretstore.external-secrets.io_acmevaults.yaml", "chart/Chart.yaml", "chart/templates/deployment.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)

			continue
		}

		if strings.Contains(string(text), "<%") || strings.Contains(string(text), "<no value>") {
			t.Errorf("%s: a placeholder is left", name)
		}
	}
}

// Half a provider would keep the next try from being made.
func TestCreateLeavesNothingWhereItFails(t *testing.T) {
	root := clone(t)
	t.Setenv("PATH", t.TempDir()) // there is no go

	if dir, err := Create(t.Context(), Options{Root: root, Name: "acme"}); err == nil || !strings.Contains(err.Error(), "go mod tidy") {
		t.Errorf("%s, %v", dir, err)
	}

	if _, err := os.Stat(filepath.Join(root, "providers", "community", "acme")); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}
