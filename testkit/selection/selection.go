package selection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// format is part of every hash. It changes whenever hashes are computed in
// another way, so that none of an earlier one is taken for the same.
const format = "inputs of tests, format 1"

// A Test is a package with tests.
type Test struct {
	// Path is the package's import path.
	Path string
	// Folder is the package's folder, relative to the repository's root, with
	// slashes.
	Folder string
	// Key is the hash of all inputs, 64 hexadecimal digits.
	Key string
	// ReadsOutputs says that the test reads what others have left: it runs after
	// them, and its inputs are more than its hash covers.
	ReadsOutputs bool

	inputs, imports map[string]bool
}

// Has reports whether a file of the repository, relative to its root and with
// slashes, is an input of the test.
func (t Test) Has(file string) bool { return t.inputs[file] }

// DependsOn reports whether the package or its tests import a package, however
// indirectly.
func (t Test) DependsOn(importPath string) bool { return t.imports[importPath] }

// Options of Load.
type Options struct {
	// Root is the repository's folder.
	Root string
	// Patterns of packages, as for the go command, relative to Root.
	Patterns []string
	// Build describes how tests are built and run, such as "go1.26 linux/amd64
	// race": tests that passed with another description have not passed.
	Build string
}

// Load returns the packages with tests that the patterns match, in order of
// their import paths, with their inputs. It runs "go list" twice at most.
func Load(ctx context.Context, options Options) ([]Test, error) {
	packages, matched, err := list(ctx, options.Root, options.Patterns)
	if err != nil {
		return nil, err
	}

	files, err := tree(options.Root)
	if err != nil {
		return nil, err
	}

	l := &loader{root: options.Root, build: options.Build, packages: packages, files: files, hashes: map[string]string{}, directives: map[string]declared{}}

	if err := l.loadPrograms(ctx, matched); err != nil {
		return nil, err
	}

	var tests []Test

	for _, path := range matched {
		if !packages[path].hasTests() || !packages[path].inWorkspace() {
			continue
		}

		test, err := l.test(path)
		if err != nil {
			return nil, err
		}

		tests = append(tests, test)
	}

	slices.SortFunc(tests, func(a, b Test) int { return strings.Compare(a.Path, b.Path) })

	return tests, nil
}

// loader computes the inputs of many tests; what they share is read once.
type loader struct {
	root, build string
	packages    map[string]*listedPackage
	files       []string
	// programs are the import paths of programs by folder, as "./folder".
	programs   map[string]string
	hashes     map[string]string
	directives map[string]declared
}

// loadPrograms lists the programs that any of the tests declares, with all that
// they depend on.
func (l *loader) loadPrograms(ctx context.Context, paths []string) error {
	var all declared

	for _, path := range paths {
		d, err := l.declaredBy(path)
		if err != nil {
			return err
		}

		all = all.merge(d)
	}

	l.programs = map[string]string{}

	folders := programs(l.files, all.programs)
	if len(folders) == 0 {
		return nil
	}

	packages, matched, err := list(ctx, l.root, folders)
	if err != nil {
		return err
	}

	for path, p := range packages {
		if _, known := l.packages[path]; !known {
			l.packages[path] = p
		}
	}

	for _, path := range matched {
		if folder, ok := relative(l.root, l.packages[path].Dir); ok {
			l.programs["./"+folder] = path
		}
	}

	return nil
}

// declaredBy merges the directives of all packages that a test depends on.
func (l *loader) declaredBy(path string) (declared, error) {
	var all declared

	for _, dependency := range closure(l.packages, path) {
		p := l.packages[dependency]
		if !p.inWorkspace() {
			continue
		}

		files := slices.Concat(p.GoFiles, p.CgoFiles)
		if dependency == path {
			files = slices.Concat(files, p.TestGoFiles, p.XTestGoFiles)
		}

		for _, file := range files {
			name := filepath.Join(p.Dir, file)

			found, ok := l.directives[name]
			if !ok {
				text, err := os.ReadFile(filepath.Clean(name))
				if err != nil {
					return declared{}, fmt.Errorf("cannot read a source file: %w", err)
				}

				found = directives(text)
				l.directives[name] = found
			}

			all = all.merge(found)
		}
	}

	return all, nil
}

// test computes the inputs of one package.
func (l *loader) test(path string) (Test, error) {
	all, err := l.declaredBy(path)
	if err != nil {
		return Test{}, err
	}

	imports := map[string]bool{}
	for _, dependency := range closure(l.packages, path) {
		imports[dependency] = true
	}

	dependencies := maps.Clone(imports)

	for _, pattern := range all.programs {
		if len(programs(l.files, []string{pattern})) == 0 {
			return Test{}, fmt.Errorf("cannot find the inputs of %s: no folder matches %q of a directive %q", path, pattern, strings.TrimSpace(programsDirective))
		}
	}

	for _, folder := range programs(l.files, all.programs) {
		program, ok := l.programs[folder]
		if !ok {
			return Test{}, fmt.Errorf("cannot find the inputs of %s: %s of a directive %q is no package of the workspace", path, folder, strings.TrimSpace(programsDirective))
		}

		for _, dependency := range closure(l.packages, program) {
			dependencies[dependency] = true
		}
	}

	// go.work decides on the language and its default settings.
	inputs, modules := map[string]bool{"go.work": true}, map[string]bool{}

	for dependency := range dependencies {
		p := l.packages[dependency]

		switch {
		case p.inWorkspace():
			for _, file := range p.source() {
				if name, ok := relative(l.root, filepath.Join(p.Dir, file)); ok {
					inputs[name] = true
				}
			}
		case p.Module != nil:
			modules[p.Module.Path+" "+p.Module.Version+" "+p.Module.Sum] = true
		}
	}

	own := l.packages[path]
	folder, _ := relative(l.root, own.Dir)
	l.own(inputs, folder)

	for _, file := range slices.Concat(own.TestEmbedFiles, own.XTestEmbedFiles) {
		inputs[folder+"/"+file] = true
	}

	for _, pattern := range all.inputs {
		if !l.addMatching(inputs, pattern) {
			return Test{}, fmt.Errorf("cannot find the inputs of %s: no file matches %q of a directive %q", path, pattern, strings.TrimSpace(inputsDirective))
		}
	}

	key, err := l.key(path, inputs, modules)

	return Test{Path: path, Folder: folder, Key: key, ReadsOutputs: all.outputs, inputs: inputs, imports: imports}, err
}

// own adds the files of the package's own folder and of its testdata. BUILD
// files are for Bazel alone.
func (l *loader) own(inputs map[string]bool, folder string) {
	for _, file := range l.files {
		if path.Dir(file) == folder && path.Base(file) != "BUILD.bazel" || strings.HasPrefix(file, folder+"/testdata/") {
			inputs[file] = true
		}
	}
}

func (l *loader) addMatching(inputs map[string]bool, pattern string) (found bool) {
	for _, file := range l.files {
		if matches(pattern, file) {
			inputs[file], found = true, true
		}
	}

	return found
}

// key hashes the names and contents of inputs.
func (l *loader) key(path string, inputs, modules map[string]bool) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n", format, path, l.build)

	for _, module := range sorted(modules) {
		fmt.Fprintf(sum, "module %s\n", module)
	}

	for _, file := range sorted(inputs) {
		content, err := l.content(file)
		if err != nil {
			return "", err
		}

		fmt.Fprintf(sum, "file %s %s\n", file, content)
	}

	return hex.EncodeToString(sum.Sum(nil)), nil
}

// content is the hash of a file's content and of whether it can be run.
func (l *loader) content(file string) (string, error) {
	if known, ok := l.hashes[file]; ok {
		return known, nil
	}

	sum := sha256.New()
	if err := read(sum, filepath.Join(l.root, filepath.FromSlash(file))); err != nil {
		return "", fmt.Errorf("cannot read an input of a test: %w", err)
	}

	l.hashes[file] = hex.EncodeToString(sum.Sum(nil))

	return l.hashes[file], nil
}

func read(into hash.Hash, name string) error {
	file, err := os.Open(filepath.Clean(name))
	if err != nil {
		return err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return err
	}

	fmt.Fprintf(into, "%t\n", info.Mode()&0o111 != 0)

	_, err = io.Copy(into, file)

	return err
}

func sorted(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for element := range set {
		list = append(list, element)
	}

	slices.Sort(list)

	return list
}
