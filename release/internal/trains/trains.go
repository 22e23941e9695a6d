package trains

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// File is where the trains are, relative to the repository's root.
const File = "release/trains.yaml"

// A Train is one module and its releases. Versions are without the leading v.
type Train struct {
	// Path is the module's folder, relative to the repository's root.
	Path string `json:"path"`
	// Version is the one that is released next.
	Version string `json:"version"`
	// TagPrefix precedes v and the version in the module's tags.
	TagPrefix string `json:"tagPrefix"`
	// Previous is the version that was released last, or empty.
	Previous string `json:"previous"`
}

// Tag names the git tag of a version of the module.
func (t Train) Tag(version string) string { return t.TagPrefix + "v" + version }

// Load reads and checks a file.
func Load(path string) ([]Train, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the release trains: %w", err)
	}
	trains, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", path, err)
	}
	return trains, nil
}

// Parse reads the content of a file and checks what can be checked without the
// repository. The error names every problem.
func Parse(data []byte) ([]Train, error) {
	var file struct {
		Modules []Train `json:"modules"`
	}
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}

	var problems []error
	for i, t := range file.Modules {
		if err := t.check(); err != nil {
			problems = append(problems, err)
		}
		// Sorted, so that two people who add a module meet in a merge conflict.
		if i > 0 && t.Path <= file.Modules[i-1].Path {
			problems = append(problems, fmt.Errorf("%s must be listed before %s, and once", t.Path, file.Modules[i-1].Path))
		}
	}
	return file.Modules, errors.Join(problems...)
}

func (t Train) check() error {
	switch {
	case t.Path == "":
		return errors.New("a module has no path")
	case t.TagPrefix != t.Path+"/":
		// The go command finds a nested module's versions by no other name.
		return fmt.Errorf("%s: tagPrefix must be %q, not %q", t.Path, t.Path+"/", t.TagPrefix)
	case !semver.IsValid("v" + t.Version):
		return fmt.Errorf("%s: %q is not a version", t.Path, t.Version)
	case t.Previous == "":
		return nil
	case !semver.IsValid("v" + t.Previous):
		return fmt.Errorf("%s: previous %q is not a version", t.Path, t.Previous)
	case semver.Compare("v"+t.Previous, "v"+t.Version) >= 0:
		return fmt.Errorf("%s: version %s is not after previous %s", t.Path, t.Version, t.Previous)
	}
	return nil
}
