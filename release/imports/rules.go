package imports

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// modulePrefix and a module's folder are its module path.
const modulePrefix = "github.com/external-secrets/eso/"

// A Rule says what the modules in some folders may depend on.
type Rule struct {
	// Folders are patterns of path.Match. The first rule that matches a module
	// is its rule.
	Folders []string
	// Siblings are patterns of the other modules of the repository that it may
	// depend on, directly or not.
	Siblings []string
	// TestSiblings are those that its tests may depend on besides.
	TestSiblings []string
	// Direct, unless it is nil, are prefixes of the third-party packages that
	// code other than tests may import.
	Direct []string
	// Never are prefixes of packages that it must not link, however indirectly.
	Never []string
}

// Rules are those of this repository. A module that none matches is a
// violation: a new module needs a rule.
func Rules() []Rule {
	return []Rule{
		{
			// Everybody imports api, so it drags in next to nothing.
			Folders: []string{"api"},
			Direct: []string{
				"google.golang.org/genproto/googleapis/rpc",
				"google.golang.org/grpc",
				"google.golang.org/protobuf",
				"k8s.io/apimachinery",
			},
		},
		{
			Folders:  []string{"sdk"},
			Siblings: []string{"api"},
		},
		{
			// The operator contains no code of a backend.
			Folders:      []string{"core"},
			Siblings:     []string{"api"},
			TestSiblings: []string{"testkit"},
			Never:        backends(),
		},
		{
			// It uses the operator's code for decisions, and that of the SDK to select
			// properties. Like the operator, it contains no code of a backend.
			Folders:  []string{"cli"},
			Siblings: []string{"api", "sdk", "core"},
			Never:    backends(),
		},
		{
			// A provider must not need the operator's code, nor another's.
			Folders:      []string{"providers/*", "providers/community/*", "generators/*"},
			Siblings:     []string{"api", "sdk"},
			TestSiblings: []string{"testkit"},
		},
		{
			Folders: []string{"release"},
		},
		{
			// Tests of all modules are built with it, so it links none of the code
			// that they test: programs are built and run as processes.
			Folders:  []string{"testkit"},
			Siblings: []string{"api", "release"},
		},
		{
			// Tests of everything together, which no module imports.
			Folders:  []string{"e2e"},
			Siblings: []string{"*", "*/*", "providers/community/*"},
		},
	}
}

// backends are prefixes of the packages of backends' libraries.
func backends() []string {
	return []string{
		"cloud.google.com/go",
		"github.com/Azure",
		"github.com/aws",
		"github.com/hashicorp/vault",
	}
}

// A Package is a node of the import graph.
type Package struct {
	// Path is its import path.
	Path string
	// Module is the path of its module, empty in the standard library.
	Module string
	// Imports are those of its code, TestImports those that its tests add.
	Imports, TestImports []string
}

// A Graph holds packages by their import path. An import that it does not hold
// is taken for one without imports.
type Graph map[string]Package

// Violations returns a sentence for each broken rule, in the order of packages,
// with the shortest chain of imports that breaks it.
func Violations(graph Graph, rules []Rule) []string {
	var violations []string
	unruled := make(map[string]bool)
	for _, p := range sorted(graph) {
		own, ok := strings.CutPrefix(p.Module, modulePrefix)
		if !ok {
			continue
		}
		at := slices.IndexFunc(rules, func(r Rule) bool { return matches(r.Folders, own) })
		if at < 0 {
			if !unruled[own] {
				violations = append(violations, "no rule says what module "+own+" may import")
			}
			unruled[own] = true
			continue
		}
		violations = append(violations, violationsOf(graph, p, own, rules[at])...)
	}
	return violations
}

func violationsOf(graph Graph, p Package, own string, rule Rule) []string {
	var violations []string
	if rule.Direct != nil {
		for _, imported := range p.Imports {
			to := graph[imported].Module
			if to != "" && to != p.Module && !hasPrefix(rule.Direct, imported) {
				violations = append(violations, fmt.Sprintf("%s may not import %s", p.Path, imported))
			}
		}
	}

	// One violation for each module or prefix that must not be reached: the
	// rest of what follows from the same import would only hide it.
	reported := make(map[string]bool)
	visit := func(chain []string, siblings []string) bool {
		reached := chain[len(chain)-1]
		sibling, ok := strings.CutPrefix(graph[reached].Module, modulePrefix)
		broken := ""
		if ok && sibling != own && !matches(siblings, sibling) {
			broken = "module " + sibling
		}
		for _, never := range rule.Never {
			if hasPrefix([]string{never}, reached) {
				broken = never
			}
		}
		if broken == "" {
			return true
		}
		if !reported[broken] {
			violations = append(violations, fmt.Sprintf("%s may not depend on %s: %s", p.Path, broken, strings.Join(chain, " -> ")))
		}
		reported[broken] = true
		return false
	}
	walk(graph, p.Path, p.Imports, func(chain []string) bool { return visit(chain, rule.Siblings) })

	walk(graph, p.Path, p.TestImports, func(chain []string) bool {
		// The dependencies of a module for tests are subject to that module's rule.
		reached, ok := strings.CutPrefix(graph[chain[len(chain)-1]].Module, modulePrefix)
		if ok && reached != own && matches(rule.TestSiblings, reached) {
			return false
		}
		return visit(chain, rule.Siblings)
	})
	return violations
}

// walk visits what the imports of a package depend on, nearest first, with the
// chain of imports that leads there. It goes no further where visit is false.
func walk(graph Graph, from string, imports []string, visit func(chain []string) bool) {
	seen := map[string]bool{from: true}
	var queue [][]string
	enqueue := func(chain, imports []string) {
		for _, imported := range imports {
			if !seen[imported] {
				seen[imported] = true
				queue = append(queue, append(slices.Clone(chain), imported))
			}
		}
	}
	enqueue([]string{from}, imports)
	for len(queue) > 0 {
		chain := queue[0]
		queue = queue[1:]
		if visit(chain) {
			enqueue(chain, graph[chain[len(chain)-1]].Imports)
		}
	}
}

func sorted(graph Graph) []Package {
	packages := make([]Package, 0, len(graph))
	for _, p := range graph {
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Path, b.Path) })
	return packages
}

func matches(patterns []string, folder string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, folder)
		return ok && err == nil
	})
}

// hasPrefix compares whole path elements, so that cloud.google.com/go does not
// cover cloud.google.com/gopher.
func hasPrefix(prefixes []string, importPath string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return importPath == prefix || strings.HasPrefix(importPath, prefix+"/")
	})
}
