package language

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckFindsWhatIsSaidAndNotWhatIsCalled(t *testing.T) {
	root := t.TempDir()

	for name, text := range map[string]string{
		"a.go":    "// Package a tells nobody.\npackage a\n\nimport \"example.com/told\"\n\n// tell is fine as a name.\nvar tell = told.Told\n\nconst message = \"it is\\nmended by whoever\"\n\nvar page = `first\nsomebody`\n",
		"page.md": "Good.\n\nIt wants to know.\n", "script.sh": "# set right\n", "CHANGELOG.md": "told\n", "x.pb.go": "package x // told\n",
		"data.yaml": "told", ".hidden/a.md": "told", "fine.go": "// Package fine intolds, untold is another word.\npackage fine\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	findings, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, finding := range findings {
		got = append(got, finding.String())
	}

	want := []string{
		`a.go:1: "tells": say report, notify, say`, `a.go:1: "nobody": say no caller, another controller, a user`,
		`a.go:6: "tell": say report, notify, say`,
		`a.go:9: "mended": say fix, repair`, `a.go:9: "whoever": say a user who, the caller that`,
		`a.go:12: "somebody": say no caller, another controller, a user`,
		`page.md:3: "wants to": say has to, asks for`, `script.sh:1: "set right": say fix, repair`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}

	if Errors(nil) != nil || Errors(findings) == nil {
		t.Error("findings are no error, or none are one")
	}
}
