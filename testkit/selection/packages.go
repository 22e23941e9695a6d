package selection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A listedPackage is what "go list" prints of a package.
type listedPackage struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	ForTest    string
	Match      []string

	GoFiles, CgoFiles, CFiles, HFiles, SFiles   []string
	EmbedFiles, TestEmbedFiles, XTestEmbedFiles []string
	TestGoFiles, XTestGoFiles                   []string

	Imports, TestImports, XTestImports []string

	Module *struct {
		Path, Version, Sum string
		Main               bool
	}
}

// inWorkspace reports whether the package's files are part of the repository.
func (p *listedPackage) inWorkspace() bool { return p.Module != nil && p.Module.Main }

// hasTests reports whether there is anything to test.
func (p *listedPackage) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// source lists the files that decide what the package is for its importers.
func (p *listedPackage) source() []string {
	return slices.Concat(p.GoFiles, p.CgoFiles, p.CFiles, p.HFiles, p.SFiles, p.EmbedFiles)
}

// list runs "go list" in the repository and returns the packages by import
// path, and the import paths that the patterns match.
func list(ctx context.Context, root string, patterns []string) (map[string]*listedPackage, []string, error) {
	// -e keeps a package that does not build: its tests have to run and fail.
	args := append([]string{"list", "-e", "-deps", "-test", "-json"}, patterns...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	command.Env = os.Environ()

	var stderr bytes.Buffer

	command.Stderr = &stderr

	output, err := command.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list packages: %w\n%s", err, strings.TrimSpace(stderr.String()))
	}

	packages := map[string]*listedPackage{}

	var matched []string

	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		p := &listedPackage{}

		err := decoder.Decode(p) //nolint:musttag // go list prints the names of fields
		if errors.Is(err, io.EOF) {
			return packages, matched, nil
		}

		if err != nil {
			return nil, nil, fmt.Errorf("cannot read what go list printed: %w", err)
		}

		// Variants that are compiled for a test, and test programs, are made of
		// the same files.
		if p.ForTest != "" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}

		packages[p.ImportPath] = p
		if len(p.Match) > 0 {
			matched = append(matched, p.ImportPath)
		}
	}
}

// closure returns the import paths of all that the tests of a package depend
// on, itself included, in order.
func closure(packages map[string]*listedPackage, path string) []string {
	seen := map[string]bool{path: true}
	queue := []string{path}

	add := func(imports []string) {
		for _, imported := range imports {
			if _, listed := packages[imported]; listed && !seen[imported] {
				seen[imported] = true
				queue = append(queue, imported)
			}
		}
	}

	root := packages[path]
	add(root.TestImports)
	add(root.XTestImports)

	// The queue grows meanwhile.
	for i := 0; i < len(queue); i++ { //nolint:intrange // see above
		add(packages[queue[i]].Imports)
	}

	slices.Sort(queue)

	return queue
}
