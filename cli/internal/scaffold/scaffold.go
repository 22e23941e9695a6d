// Package scaffold creates the folder of a new provider, which builds, passes the
// conformance kit and can be installed. It calls an invented backend, which its
// author replaces.
package scaffold

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

//go:embed all:template
var files embed.FS

// Options of a scaffold.
type Options struct {
	// Name of the provider, such as "acme": lower case, a letter first.
	Name string
	// Kind of its config; empty means the name in upper camel case.
	Kind string
	// Root is a clone of the repository, whose api and sdk are used.
	Root string
	// Dir to create; empty means providers/community/NAME below Root.
	Dir string
}

var (
	validName = regexp.MustCompile(`^[a-z][a-z0-9]{0,30}(-[a-z0-9]+){0,4}$`)
	validKind = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
)

// values are the inputs of the templates.
type values struct {
	Name, Kind, Singular, Plural, Module, Root string
}

// Create creates the folder and returns its path. An existing folder is an error, and
// is not changed.
func Create(ctx context.Context, options Options) (dir string, err error) {
	v, dir, err := plan(options)
	if err != nil {
		return "", err
	}

	if _, err := os.Lstat(dir); err == nil {
		return "", fmt.Errorf("cannot create %s: it exists; remove it, or choose another name", dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot create %s: %w", dir, err)
	}

	// The named result is empty by then.
	made := dir

	defer func() {
		if err != nil {
			_ = os.RemoveAll(made) // half a provider is of no use
		}
	}()

	if err := write(v, dir); err != nil {
		return "", err
	}

	// Which versions the modules below api and sdk need, and their sums.
	tidy := exec.CommandContext(ctx, "go", "mod", "tidy")
	tidy.Dir = dir
	tidy.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")

	if output, err := tidy.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot complete %s (go mod tidy): %w\n%s", filepath.Join(dir, "go.mod"), err, bytes.TrimSpace(output))
	}

	return dir, nil
}

func plan(options Options) (values, string, error) {
	var none values

	if !validName.MatchString(options.Name) {
		return none, "", fmt.Errorf("%q is no name of a provider: use lower-case letters, digits and single hyphens, a letter first", options.Name)
	}

	kind := options.Kind
	if kind == "" {
		var camel strings.Builder
		for part := range strings.SplitSeq(options.Name, "-") {
			camel.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}

		kind = camel.String()
	}

	if !validKind.MatchString(kind) {
		return none, "", fmt.Errorf("%q is no kind: use letters and digits, a capital letter first", kind)
	}

	root, err := filepath.Abs(options.Root)
	if err != nil {
		return none, "", fmt.Errorf("cannot use the repository: %w", err)
	}

	for _, module := range []string{"api", "sdk"} {
		if _, err := os.Stat(filepath.Join(root, module, "go.mod")); err != nil {
			return none, "", fmt.Errorf("%s is no clone of the repository of External Secrets: %w; --root names one", root, err)
		}
	}

	dir := options.Dir
	if dir == "" {
		dir = filepath.Join(root, "providers", "community", options.Name)
	}

	if dir, err = filepath.Abs(dir); err != nil {
		return none, "", fmt.Errorf("cannot use the folder: %w", err)
	}

	relative, err := filepath.Rel(dir, root)
	if err != nil {
		return none, "", fmt.Errorf("cannot find the way from %s to %s: %w", dir, root, err)
	}

	return values{
		Name: options.Name, Kind: kind, Singular: strings.ToLower(kind), Plural: strings.ToLower(kind) + "s", Root: filepath.ToSlash(relative),
		Module: "github.com/external-secrets/eso/providers/community/" + options.Name,
	}, dir, nil
}

// target returns the path of a template's file.
func target(name string, v values) string {
	switch {
	case name == "api/types.go":
		return "api/v2alpha1/" + strings.ReplaceAll(v.Name, "-", "_") + "_types.go"
	case strings.HasPrefix(name, "api/"):
		return "api/v2alpha1/" + strings.TrimPrefix(name, "api/")
	case name == "cmd/main.go":
		return "cmd/provider-" + v.Name + "/main.go"
	case name == "crds/crd.yaml":
		return "crds/provider.secretstore.external-secrets.io_" + v.Plural + ".yaml"
	default:
		return name
	}
}

func write(v values, dir string) error {
	return fs.WalkDir(files, "template", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}

		// A Go file or go.mod by its own name would be part of this module.
		name = strings.TrimSuffix(strings.TrimPrefix(name, "template/"), ".tmpl")

		parsed, err := template.New(path.Base(name)).Delims("<%", "%>").Option("missingkey=error").Parse(string(text))
		if err != nil {
			return fmt.Errorf("cannot use the template of %s: %w", name, err)
		}

		var made bytes.Buffer
		if err := parsed.Execute(&made, v); err != nil {
			return fmt.Errorf("cannot fill in the template of %s: %w", name, err)
		}

		into := filepath.Join(dir, filepath.FromSlash(target(name, v)))
		if err := os.MkdirAll(filepath.Dir(into), 0o755); err != nil {
			return fmt.Errorf("cannot create a folder: %w", err)
		}

		if err := os.WriteFile(into, made.Bytes(), 0o644); err != nil {
			return fmt.Errorf("cannot write %s: %w", into, err)
		}

		return nil
	})
}
