package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

//test:inputs docs/** **/*_test.go

// Tests that a page names exist: a rule whose test is gone is held by nothing.
func TestNamedTestsExist(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}

	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`)

	repository := os.DirFS(root)
	err = fs.WalkDir(repository, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(repository, path)
		for _, match := range declaration.FindAllSubmatch(text, -1) {
			declared[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}

	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`").FindAllSubmatch(text, -1) {
			named++
			if !declared[string(match[1])] {
				t.Errorf("%s names %s, which is not there", filepath.Base(page), match[1])
			}
		}
	}
	if named == 0 {
		t.Error("the pages name no test: the pattern is wrong")
	}
}
