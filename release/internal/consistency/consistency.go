package consistency

import (
	"fmt"

	"github.com/external-secrets/eso/release/internal/trains"
	"github.com/external-secrets/eso/release/internal/workspace"
)

// ModulePrefix and a module's folder are its module path.
const ModulePrefix = "github.com/external-secrets/eso/"

// Check returns a sentence for each problem, in the order of the modules.
// HasChangelog reports whether there is a change log in a module's folder.
func Check(released []trains.Train, modules []workspace.Module, hasChangelog func(dir string) bool) []string {
	versions := make(map[string]string) // By module path.
	dirs := make(map[string]string)     // By module path.
	trained := make(map[string]bool)    // By folder.
	for _, t := range released {
		trained[t.Path] = true
		versions[ModulePrefix+t.Path] = "v" + t.Version
	}
	for _, m := range modules {
		dirs[m.Path] = m.Dir
	}

	var problems []string
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf(format, args...))
	}
	for _, t := range released {
		if _, ok := dirs[ModulePrefix+t.Path]; !ok {
			report("%s is in trains.yaml, but go.work does not use it", t.Path)
		}
	}
	for _, m := range modules {
		if !trained[m.Dir] {
			report("%s is in go.work, but not in trains.yaml", m.Dir)
		}
		if m.Path != ModulePrefix+m.Dir {
			report("%s: the module path is %s, not %s", m.Dir, m.Path, ModulePrefix+m.Dir)
		}
		if !hasChangelog(m.Dir) {
			report("%s has no CHANGELOG.md", m.Dir)
		}
		for _, sibling := range modules {
			required, ok := m.Requires[sibling.Path]
			if !ok {
				continue
			}
			if want, ok := versions[sibling.Path]; ok && required != want {
				report("%s requires %s at %s, but trains.yaml has it at %s", m.Dir, sibling.Dir, required, want)
			}
			// A checkout must build unchanged, also without go.work.
			if m.Replaces[sibling.Path] != sibling.Dir {
				report("%s must replace %s by its folder", m.Dir, sibling.Dir)
			}
		}
	}
	return problems
}
