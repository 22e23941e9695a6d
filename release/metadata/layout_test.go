package metadata

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A reader who knows one provider finds everything in the others.
func TestProvidersFollowTheLayout(t *testing.T) {
	t.Parallel()

	root := filepath.Join("..", "..")

	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range all {
		if err := CheckLayout(filepath.Join(root, filepath.FromSlash(m.Dir))); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckLayout(t *testing.T) {
	t.Parallel()

	const constructors = "package store\n\nfunc Provider(version, commit string) provider.Provider {\n\treturn provider.Provider{Kinds: []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, New)}}\n}\n"

	for _, test := range []struct {
		name, why string
		change    map[string]string
		want      string
	}{
		{name: "complete", why: "the layout is what the five have"},
		{name: "a folder of its own", why: "each provider would have another tree", change: map[string]string{"session/session.go": "package session\n"}, want: "session is not part of the layout"},
		{name: "no rights", why: "they are part of every installation", change: map[string]string{"config/rbac.yaml": ""}, want: "there is no config/rbac.yaml"},
		{name: "no CRD", why: "likewise", change: map[string]string{"crds/acme.yaml": ""}, want: "there is no crds/*.yaml"},
		{name: "another name", why: "the constructor has one name", change: map[string]string{"store/provider.go": strings.Replace(constructors, "New", "open", 1)}, want: "are constructed by open, not by New"},
		{name: "a literal", why: "likewise", change: map[string]string{"store/provider.go": strings.Replace(constructors, "New", "func() {}", 1)}, want: "are constructed by a function literal"},
		{name: "no Provider", why: "the command and in-process users call it", change: map[string]string{"store/provider.go": "package store\n"}, want: "there is no func Provider"},
		{name: "a large file", why: "it has more than one concern", change: map[string]string{"store/store.go": "package store\n" + strings.Repeat("//\n", maxFileLines)}, want: "split it by concern"},
		{name: "a large test", why: "tables are long", change: map[string]string{"store/store_test.go": "package store\n" + strings.Repeat("//\n", maxFileLines)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			dir := filepath.Join(t.TempDir(), "acme")
			files := map[string]string{"store/provider.go": constructors}

			for _, name := range layout("acme") {
				if name = strings.Replace(name, "*", "acme", 1); files[name] == "" {
					files[name] = "package x\n"
				}
			}

			maps.Copy(files, test.change)

			for name, text := range files {
				if text == "" {
					continue
				}

				path := filepath.Join(dir, filepath.FromSlash(name))
				if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
					t.Fatal(err)
				}

				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			err := CheckLayout(dir)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s: %v", test.why, err)
			}
		})
	}
}
