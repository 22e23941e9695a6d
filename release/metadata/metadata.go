package metadata

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// File is the name of a provider's metadata.
const File = "metadata.yaml"

// Metadata is what a provider says of itself.
type Metadata struct {
	// Name of the provider, that of its folder.
	Name string `json:"name"`
	// Title for people.
	Title string `json:"title"`
	// Stability is alpha, beta or stable.
	Stability string `json:"stability"`
	// Kinds of config.
	Kinds []Kind `json:"kinds"`
	// Authentication lists the ways to log in to the backend.
	Authentication []string `json:"authentication"`
	// TestedWith lists the backends that its tests run against.
	TestedWith []string `json:"testedWith"`
	// Owners review changes.
	Owners []string `json:"owners"`

	// Dir is its folder, relative to the repository, with slashes: below
	// providers or generators.
	Dir string `json:"-"`
}

// Program is the name of its command: provider-vault, generator-password.
func (m Metadata) Program() string {
	if strings.HasPrefix(m.Dir, "generators/") {
		return "generator-" + m.Name
	}

	return "provider-" + m.Name
}

// Package is the package of its command, relative to the repository.
func (m Metadata) Package() string { return "./" + m.Dir + "/cmd/" + m.Program() }

// Account is the name of its ServiceAccount.
func (m Metadata) Account() string { return "external-secrets-" + m.Program() }

// Kind is a kind of config.
type Kind struct {
	// Name of the kind.
	Name string `json:"name"`
	// Capabilities that the provider claims for it, in the protocol's order.
	Capabilities []string `json:"capabilities"`
	// Note on them; may be empty.
	Note string `json:"note,omitempty"`
}

// capabilities of stores, in the protocol's order.
func capabilities() []string {
	return []string{"Read", "Find", "Push", "Delete", "Exists", "Watch"}
}

// All gives the metadata of every provider and generator of the repository, in
// the order of their folders.
func All(root string) ([]Metadata, error) {
	var all []Metadata

	for _, pattern := range []string{"providers/*/go.mod", "providers/community/*/go.mod", "generators/*/go.mod"} {
		modules, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, fmt.Errorf("cannot look for providers: %w", err)
		}

		for _, module := range modules {
			m, err := Load(filepath.Dir(module))
			if err != nil {
				return nil, err
			}

			dir, err := filepath.Rel(root, filepath.Dir(module))
			if err != nil {
				return nil, fmt.Errorf("cannot name the folder of provider %s: %w", m.Name, err)
			}

			m.Dir = filepath.ToSlash(dir)
			all = append(all, m)
		}
	}

	return all, nil
}

// Load reads the metadata of the provider in a folder.
func Load(dir string) (Metadata, error) {
	file := filepath.Join(dir, File)

	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return Metadata{}, fmt.Errorf("cannot read a provider's metadata: %w", err)
	}

	var m Metadata
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return m, fmt.Errorf("cannot read %s: %w", file, err)
	}

	if err := errors.Join(m.check(filepath.Base(dir))...); err != nil {
		return m, fmt.Errorf("cannot use %s:\n%w", file, err)
	}

	return m, nil
}

func (m Metadata) check(folder string) []error {
	var errs []error

	if m.Name != folder {
		errs = append(errs, fmt.Errorf("name: %q is not that of the folder, %q", m.Name, folder))
	}

	if m.Title == "" {
		errs = append(errs, errors.New("title: is missing"))
	}

	if !slices.Contains([]string{"alpha", "beta", "stable"}, m.Stability) {
		errs = append(errs, fmt.Errorf("stability: %q is none of alpha, beta and stable", m.Stability))
	}

	if len(m.Kinds) == 0 {
		errs = append(errs, errors.New("kinds: is empty"))
	}

	for i, kind := range m.Kinds {
		if kind.Name == "" || len(kind.Capabilities) == 0 {
			errs = append(errs, fmt.Errorf("kinds[%d]: name and capabilities are needed", i))
		}

		order := -1

		for _, capability := range kind.Capabilities {
			at := slices.Index(capabilities(), capability)
			if at <= order {
				errs = append(errs, fmt.Errorf("kinds[%d].capabilities: %q is none of %s, or not in this order", i, capability, strings.Join(capabilities(), ", ")))
			}

			order = at
		}
	}

	return errs
}

// Capabilities of a kind, as a sentence.
func (k Kind) text() string {
	text := strings.Join(k.Capabilities, ", ")
	if k.Note != "" {
		text += "; " + k.Note
	}

	return text
}

// Markers around the table of a README.
const (
	begin = "<!-- begin of what metadata.yaml says -->\n"
	end   = "<!-- end of what metadata.yaml says -->\n"
)

// table of a README.
func (m Metadata) table() string {
	names, texts := make([]string, 0, len(m.Kinds)), make([]string, 0, len(m.Kinds))

	for _, kind := range m.Kinds {
		names = append(names, "`"+kind.Name+"`")

		text := kind.text()
		if len(m.Kinds) > 1 {
			text = "`" + kind.Name + "`: " + text
		}

		texts = append(texts, text)
	}

	rows := [][2]string{
		{"stability", m.Stability},
		{"kinds", strings.Join(names, ", ") + " of `provider.secretstore.external-secrets.io/v2alpha1`"},
		{"capabilities", strings.Join(texts, "<br>")},
		{"authentication", strings.Join(m.Authentication, ", ")},
		{"tested with", strings.Join(m.TestedWith, ", ")},
	}

	var table strings.Builder

	table.WriteString("| | |\n|---|---|\n")

	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(&table, "| %s | %s |\n", row[0], row[1])
		}
	}

	return table.String()
}

// README gives a README with the table that the metadata says.
func (m Metadata) README(text string) (string, error) {
	return splice(text, m.table(), m.Dir+"/README.md")
}

// List gives docs/providers.md with the table of the given providers.
func List(text string, all []Metadata) (string, error) {
	var table strings.Builder

	table.WriteString("| provider | kinds | capabilities | authentication | tested with | stability |\n|---|---|---|---|---|---|\n")

	for _, m := range all {
		for i, kind := range m.Kinds {
			name, authentication, tested := "", "", ""
			if i == 0 {
				name, authentication, tested = fmt.Sprintf("[%s](../%s)", m.Title, m.Dir), strings.Join(m.Authentication, ", "), strings.Join(m.TestedWith, ", ")
			}

			fmt.Fprintf(&table, "| %s | `%s` | %s | %s | %s | %s |\n", name, kind.Name, kind.text(), authentication, tested, m.Stability)
		}
	}

	return splice(text, table.String(), "docs/providers.md")
}

func splice(text, table, file string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", fmt.Errorf("%s has no line %q", file, strings.TrimSpace(begin))
	}

	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("%s has no line %q", file, strings.TrimSpace(end))
	}

	return before + begin + table + end + after, nil
}

// ownersLine begins what CODEOWNERS says of providers.
const ownersLine = "# Providers, as their metadata.yaml says.\n"

// Owners gives CODEOWNERS with the reviewers of the given providers.
func Owners(text string, all []Metadata) string {
	before, _, _ := strings.Cut(text, ownersLine)

	var lines strings.Builder

	lines.WriteString(before + ownersLine)

	for _, m := range all {
		if len(m.Owners) > 0 {
			fmt.Fprintf(&lines, "/%s/ %s\n", m.Dir, strings.Join(m.Owners, " "))
		}
	}

	return lines.String()
}

// Write brings every file up to date that is made from metadata.
func Write(root string) error {
	all, err := All(root)
	if err != nil {
		return err
	}

	for _, m := range all {
		if err := rewrite(filepath.Join(root, filepath.FromSlash(m.Dir), "README.md"), m.README); err != nil {
			return err
		}
	}

	// Those of the community come and go with their folder: no other file may
	// name them.
	all = slices.DeleteFunc(all, func(m Metadata) bool { return strings.HasPrefix(m.Dir, "providers/community/") })

	if err := rewrite(filepath.Join(root, "docs", "providers.md"), func(text string) (string, error) { return List(text, all) }); err != nil {
		return err
	}

	return rewrite(filepath.Join(root, "CODEOWNERS"), func(text string) (string, error) { return Owners(text, all), nil })
}

func rewrite(file string, change func(string) (string, error)) error {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return fmt.Errorf("cannot bring a file up to date: %w", err)
	}

	changed, err := change(string(text))
	if err != nil {
		return fmt.Errorf("cannot bring a file up to date: %w", err)
	}

	if changed == string(text) {
		return nil
	}

	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		return fmt.Errorf("cannot bring a file up to date: %w", err)
	}

	return nil
}
