// Package language checks that comments, messages and pages use the words of
// Kubernetes, client-go and gRPC, and none that a reader would have to guess at.
package language

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// A Finding is an avoided word.
type Finding struct {
	// File is relative to the repository, with slashes; Line counts from 1.
	File string
	Line int
	// Word is what was found, Instead what to write.
	Word, Instead string
}

// String is the finding as a line of a compiler's output.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %q: say %s", f.File, f.Line, f.Word, f.Instead)
}

type rule struct {
	word    *regexp.Regexp
	instead string
}

// rules are the avoided words, each with what the field says.
func rules() []rule {
	var all []rule

	for _, r := range [][2]string{
		{`tells?|told|telling`, "report, notify, say"},
		{`hears?|heard`, "observe, receive"},
		{`mends?|mended|mending|set right`, "fix, repair"},
		{`nobody|somebody`, "no caller, another controller, a user"},
		{`whoever`, "a user who, the caller that"},
		{`wants to`, "has to, asks for"},
		{`learns?|learnt`, "reads, receives, finds out"},
		{`let in|lets in`, "authenticate, authorize"},
		{`farewell`, "last message, shutdown"},
		{`urgency|urgencies`, "priority"},
	} {
		all = append(all, rule{regexp.MustCompile(`(?i)\b(?:` + r[0] + `)\b`), r[1]})
	}

	return all
}

// exceptions are files that may use a word, each with the reason.
func exceptions() map[string]string {
	return map[string]string{
		"release/internal/language/language.go":      "it lists the words",
		"release/internal/language/language_test.go": "it has examples of them",
	}
}

// Check looks at the Go files, protocols, scripts and pages of a repository. Change
// logs describe the past, and generated files repeat their sources.
func Check(root string) ([]Finding, error) {
	var findings []Finding

	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() {
			if name != "." && strings.HasPrefix(entry.Name(), ".") || name == "bin" || name == "dist" || name == "hack/tools" {
				return fs.SkipDir
			}

			return nil
		}

		if _, excepted := exceptions()[name]; excepted || generated(name) || !entry.Type().IsRegular() {
			return nil
		}

		found, err := checkFile(root, name)
		findings = append(findings, found...)

		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot check the language: %w", err)
	}

	return findings, nil
}

func generated(name string) bool {
	base := path.Base(name)

	return base == "CHANGELOG.md" || strings.HasPrefix(base, "zz_generated.") || strings.HasSuffix(base, ".pb.go")
}

func checkFile(root, name string) ([]Finding, error) {
	extension := path.Ext(name)
	if extension != ".go" && extension != ".md" && extension != ".proto" && extension != ".sh" {
		return nil, nil
	}

	text, err := fs.ReadFile(os.DirFS(root), name)
	if err != nil {
		return nil, err
	}

	if extension == ".go" {
		return checkGo(name, text)
	}

	var findings []Finding

	for i, line := range strings.Split(string(text), "\n") {
		findings = append(findings, check(name, i+1, line)...)
	}

	return findings, nil
}

// checkGo looks at comments and at strings: what is said, not what is called.
func checkGo(name string, text []byte) ([]Finding, error) {
	files := token.NewFileSet()

	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	var findings []Finding

	for _, group := range file.Comments {
		for _, comment := range group.List {
			begin := files.Position(comment.Pos()).Line
			for i, line := range strings.Split(comment.Text, "\n") {
				findings = append(findings, check(name, begin+i, line)...)
			}
		}
	}

	ast.Inspect(file, func(node ast.Node) bool {
		if _, imported := node.(*ast.ImportSpec); imported {
			return false
		}

		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}

		// A quoted string's escapes would hide the begin of a word.
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			value = literal.Value
		}

		begin := files.Position(literal.Pos()).Line
		for i, line := range strings.Split(value, "\n") {
			if strings.HasPrefix(literal.Value, "\"") {
				i = 0
			}

			findings = append(findings, check(name, begin+i, line)...)
		}

		return true
	})

	return findings, nil
}

func check(name string, line int, text string) []Finding {
	var findings []Finding

	for _, r := range rules() {
		for _, word := range r.word.FindAllString(text, -1) {
			findings = append(findings, Finding{File: name, Line: line, Word: word, Instead: r.instead})
		}
	}

	return findings
}

// Errors joins findings into one error; nil if there are none.
func Errors(findings []Finding) error {
	errs := make([]error, 0, len(findings))
	for _, finding := range findings {
		errs = append(errs, errors.New(finding.String()))
	}

	return errors.Join(errs...)
}
