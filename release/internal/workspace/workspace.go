package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A Module is what its go.mod says.
type Module struct {
	// Dir is its folder, relative to the repository's root, with slashes.
	Dir string
	// Path is its module path.
	Path string
	// Requires maps module paths to the versions that are required.
	Requires map[string]string
	// Replaces maps module paths to the folders, relative to the repository's
	// root, that replace them. Replacements by another module are absent.
	Replaces map[string]string
}

// Root returns the folder at or above dir that holds go.work.
func Root(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cannot find the repository's root: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		_, err := os.Stat(filepath.Join(at, "go.work"))
		if err == nil {
			return at, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return "", fmt.Errorf("cannot find the repository's root: no go.work in or above %s", dir)
		}
	}
}

// Modules returns the modules that go.work uses, by folder.
func Modules(root string) ([]Module, error) {
	data, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the workspace: %w", err)
	}
	work, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot read the workspace: %w", err)
	}
	var modules []Module
	for _, use := range work.Use {
		m, err := read(root, path.Clean(filepath.ToSlash(use.Path)))
		if err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b Module) int { return strings.Compare(a.Dir, b.Dir) })
	return modules, nil
}

func read(root, dir string) (Module, error) {
	name := path.Join(dir, "go.mod")
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return Module{}, fmt.Errorf("cannot read a module of go.work: %w", err)
	}
	file, err := modfile.Parse(name, data, nil)
	if err != nil {
		return Module{}, fmt.Errorf("cannot read a module of go.work: %w", err)
	}
	if file.Module == nil {
		return Module{}, fmt.Errorf("cannot read a module of go.work: %s names no module", name)
	}
	m := Module{
		Dir:      dir,
		Path:     file.Module.Mod.Path,
		Requires: make(map[string]string),
		Replaces: make(map[string]string),
	}
	for _, r := range file.Require {
		m.Requires[r.Mod.Path] = r.Mod.Version
	}
	for _, r := range file.Replace {
		// A replacement by a folder has no version.
		if r.New.Version == "" {
			m.Replaces[r.Old.Path] = path.Join(dir, filepath.ToSlash(r.New.Path))
		}
	}
	return m, nil
}
