package metadata

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFileLines is the most lines that a Go file of a provider has, generated files
// and tests excepted. A larger one has more than one concern.
const maxFileLines = 800

// layout returns the files that every provider has, as patterns of filepath.Glob,
// by the provider's name.
func layout(name string) []string {
	return []string{
		"go.mod", "README.md", "CHANGELOG.md", File,
		"api/v2alpha1/doc.go", "api/v2alpha1/register.go", "api/v2alpha1/*_types.go", "api/v2alpha1/zz_generated.deepcopy.go",
		"store/doc.go", "store/provider.go",
		"cmd/provider-" + name + "/main.go",
		"config/rbac.yaml",
		"crds/*.yaml",
	}
}

// entries returns the names that a provider's folder may contain.
func entries() []string {
	return []string{
		"go.mod", "go.sum", "BUILD.bazel", "README.md", "CHANGELOG.md", File,
		"api", "store", "cmd", "config", "crds",
		// Packages of the provider's own, its conformance test, its tests against a
		// real backend, and its chart.
		"internal", "conformance", "e2e", "chart",
	}
}

// CheckLayout returns an error that names each deviation of a provider's folder
// from the layout that all providers have.
func CheckLayout(dir string) error {
	var errs []error

	name := filepath.Base(dir)

	for _, pattern := range layout(name) {
		if found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern))); err != nil || len(found) == 0 {
			errs = append(errs, fmt.Errorf("%s: there is no %s", name, pattern))
		}
	}

	listed, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot read the folder of a provider: %w", err)
	}

	for _, entry := range listed {
		if !slices.Contains(entries(), entry.Name()) {
			errs = append(errs, fmt.Errorf("%s: %s is not part of the layout: code is in store, or in internal", name, entry.Name()))
		}
	}

	if err := checkConstructors(filepath.Join(dir, "store", "provider.go")); err != nil {
		errs = append(errs, fmt.Errorf("%s: store/provider.go: %w", name, err))
	}

	return errors.Join(append(errs, checkSizes(dir)...)...)
}

// checkConstructors checks that a file declares the function Provider, and that the
// stores of each kind are constructed by a function New.
func checkConstructors(path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("cannot parse: %w", err)
	}

	var (
		errs     []error
		declared bool
		kinds    int
	)

	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			declared = declared || node.Recv == nil && node.Name.Name == "Provider" && node.Type.Params.NumFields() == 2 && node.Type.Results.NumFields() == 1
		case *ast.CallExpr:
			called, ok := node.Fun.(*ast.SelectorExpr)
			if !ok || called.Sel.Name != "StoreKind" || len(node.Args) != 2 {
				return true
			}

			kinds++

			if name := constructor(node.Args[1]); name != "New" {
				errs = append(errs, fmt.Errorf("a kind's stores are constructed by %s, not by New", name))
			}
		}

		return true
	})

	if !declared {
		errs = append(errs, errors.New("there is no func Provider(version, commit string) provider.Provider"))
	}

	if kinds == 0 {
		errs = append(errs, errors.New("there is no provider.StoreKind"))
	}

	return errors.Join(errs...)
}

// constructor returns the name of a function that is passed as an argument.
func constructor(argument ast.Expr) string {
	switch argument := argument.(type) {
	case *ast.SelectorExpr:
		return argument.Sel.Name
	case *ast.Ident:
		return argument.Name
	default:
		return "a function literal"
	}
}

func checkSizes(dir string) []error {
	var errs []error

	files := os.DirFS(dir)

	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_generated") {
			return err
		}

		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}

		if lines := strings.Count(string(text), "\n"); lines > maxFileLines {
			errs = append(errs, fmt.Errorf("%s: %s has %d lines, more than %d: split it by concern", filepath.Base(dir), path, lines, maxFileLines))
		}

		return nil
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("cannot read the files of a provider: %w", err))
	}

	return errs
}
