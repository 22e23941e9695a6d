package trains

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`
modules:
  - {path: api, version: "0.2.0", tagPrefix: api/, previous: "0.1.0"}
  - {path: providers/vault, version: "0.1.0", tagPrefix: providers/vault/, previous: ""}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Train{
		{Path: "api", Version: "0.2.0", TagPrefix: "api/", Previous: "0.1.0"},
		{Path: "providers/vault", Version: "0.1.0", TagPrefix: "providers/vault/"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse() (-want +got):\n%s", diff)
	}
	if tag := got[1].Tag("0.3.1"); tag != "providers/vault/v0.3.1" {
		t.Errorf("Tag() = %q", tag)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct {
		why, file, want string
	}{
		{
			why:  "a misspelt field would silently be empty",
			file: `modules: [{path: api, version: "0.1.0", tag: api/}]`,
			want: `unknown field "tag"`,
		},
		{
			why:  "a module without a folder is none",
			file: `modules: [{version: "0.1.0"}]`,
			want: "a module has no path",
		},
		{
			why:  "the go command looks for tags under the folder's name only",
			file: `modules: [{path: api, version: "0.1.0", tagPrefix: interface/}]`,
			want: `api: tagPrefix must be "api/", not "interface/"`,
		},
		{
			why:  "the v belongs to the tag, not to the version",
			file: `modules: [{path: api, version: v0.1.0, tagPrefix: api/}]`,
			want: `api: "v0.1.0" is not a version`,
		},
		{
			why:  "previous is a version, too",
			file: `modules: [{path: api, version: "0.1.0", tagPrefix: api/, previous: none}]`,
			want: `api: previous "none" is not a version`,
		},
		{
			why:  "a version is released once",
			file: `modules: [{path: api, version: "0.1.0", tagPrefix: api/, previous: "0.1.0"}]`,
			want: "api: version 0.1.0 is not after previous 0.1.0",
		},
		{
			why: "the order is fixed",
			file: `modules:
- {path: core, version: "0.1.0", tagPrefix: core/}
- {path: api, version: "0.1.0", tagPrefix: api/}`,
			want: "api must be listed before core, and once",
		},
		{
			why: "a module has one version",
			file: `modules:
- {path: api, version: "0.1.0", tagPrefix: api/}
- {path: api, version: "0.2.0", tagPrefix: api/}`,
			want: "api must be listed before api, and once",
		},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, err := Parse([]byte(test.file))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Parse() = %v, want %q in it", err, test.want)
			}
		})
	}
}
