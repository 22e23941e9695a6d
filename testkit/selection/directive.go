package selection

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	inputsDirective   = "//test:inputs "
	programsDirective = "//test:programs "
	outputsDirective  = "//test:outputs"
)

// declared are the patterns that directives name, without duplicates.
type declared struct {
	inputs, programs []string
	outputs          bool
}

// directives reads the directives of a Go file.
func directives(text []byte) declared {
	var found declared

	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if patterns, ok := strings.CutPrefix(line, inputsDirective); ok {
			found.inputs = append(found.inputs, strings.Fields(patterns)...)
		}

		found.outputs = found.outputs || line == outputsDirective

		if patterns, ok := strings.CutPrefix(line, programsDirective); ok {
			found.programs = append(found.programs, strings.Fields(patterns)...)
		}
	}

	return found
}

func (d declared) merge(other declared) declared {
	d.inputs = append(slices.Clone(d.inputs), other.inputs...)
	d.programs = append(slices.Clone(d.programs), other.programs...)

	slices.Sort(d.inputs)
	slices.Sort(d.programs)

	return declared{inputs: slices.Compact(d.inputs), programs: slices.Compact(d.programs), outputs: d.outputs || other.outputs}
}

// tree lists the files of the repository, with slashes and relative to its
// root: folders of tools, such as .git, and links to what builds have produced
// are left out.
func tree(root string) ([]string, error) {
	var files []string

	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && name != ".ci" && strings.HasPrefix(entry.Name(), "."),
			entry.IsDir() && (name == "bin" || name == "dist"):
			return fs.SkipDir
		case entry.Type().IsRegular():
			files = append(files, name)
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the repository: %w", err)
	}

	return files, nil
}

// matches reports whether a pattern selects a file or a folder. Elements are
// those of path.Match; "**" stands for any number of elements.
func matches(pattern, name string) bool {
	return matchElements(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchElements(pattern, name []string) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == "**":
		for i := range len(name) + 1 {
			if matchElements(pattern[1:], name[i:]) {
				return true
			}
		}

		return false
	case len(name) == 0:
		return false
	}

	ok, err := path.Match(pattern[0], name[0])

	return ok && err == nil && matchElements(pattern[1:], name[1:])
}

// programs lists the folders of the repository that hold Go files and that one
// of the patterns matches, as patterns for the go command.
func programs(files, patterns []string) []string {
	var folders []string

	for _, file := range files {
		if path.Ext(file) != ".go" {
			continue
		}

		folder := path.Dir(file)
		if slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, folder) }) {
			folders = append(folders, "./"+folder)
		}
	}

	slices.Sort(folders)

	return slices.Compact(folders)
}

// relative is the path of a file within the repository, with slashes; ok is
// false for one outside of it.
func relative(root, file string) (name string, ok bool) {
	name, err := filepath.Rel(root, file)
	if err != nil || name == ".." || strings.HasPrefix(name, ".."+string(filepath.Separator)) {
		return "", false
	}

	return filepath.ToSlash(name), true
}
