package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestModules(t *testing.T) {
	root := repository(t, map[string]string{
		"go.work":    "go 1.26.0\n\nuse (\n\t./providers/fake\n\t./api\n)\n",
		"api/go.mod": "module example.com/api\n",
		"providers/fake/go.mod": `module example.com/providers/fake

require (
	example.com/api v0.1.0
	example.com/third v1.2.3 // indirect
)

replace example.com/api => ../../api

replace example.com/third => example.com/fork v1.2.4
`,
	})
	got, err := Modules(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []Module{
		{Dir: "api", Path: "example.com/api", Requires: map[string]string{}, Replaces: map[string]string{}},
		{
			Dir:      "providers/fake",
			Path:     "example.com/providers/fake",
			Requires: map[string]string{"example.com/api": "v0.1.0", "example.com/third": "v1.2.3"},
			Replaces: map[string]string{"example.com/api": "api"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Modules() (-want +got):\n%s", diff)
	}
}

func TestModulesFails(t *testing.T) {
	for _, test := range []struct {
		why, want string
		files     map[string]string
	}{
		{
			why:   "without go.work there is nothing to release",
			files: nil,
			want:  "go.work",
		},
		{
			why:   "a broken go.work is not an empty one",
			files: map[string]string{"go.work": "use (\n"},
			want:  "go.work:",
		},
		{
			why:   "a module that go.work uses must be there",
			files: map[string]string{"go.work": "use ./api\n"},
			want:  "api/go.mod",
		},
		{
			why:   "a go.mod without a module line belongs to no module",
			files: map[string]string{"go.work": "use ./api\n", "api/go.mod": "go 1.26.0\n"},
			want:  "api/go.mod names no module",
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := Modules(repository(t, test.files))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Modules() = %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestRoot(t *testing.T) {
	root := repository(t, map[string]string{"go.work": "", "a/b/file": ""})
	got, err := Root(filepath.Join(root, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if got != root {
		t.Errorf("Root() = %q, want %q", got, root)
	}

	outside := t.TempDir()
	if _, err := Root(outside); err == nil || !strings.Contains(err.Error(), outside) {
		t.Errorf("Root() outside of a repository = %v, want an error that names %s", err, outside)
	}
}
