package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is what go list prints of a package.
type listed struct {
	ImportPath   string   `json:"ImportPath"`
	Imports      []string `json:"Imports"`
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`

	Module *struct {
		Path string `json:"Path"`
	} `json:"Module"`
}

//test:inputs **/*.go **/go.mod

// TestWorkspace holds the repository to its rules. Bazel does not run it: it
// needs the go command and every module's source.
func TestWorkspace(t *testing.T) {
	graph := load(t)
	for _, v := range Violations(graph, Rules()) {
		t.Error(v)
	}

	// A graph without the operator in it would break no rule.
	if _, ok := graph[modulePrefix+"core/cmd/external-secrets"]; !ok {
		t.Error("the graph does not hold the operator")
	}
}

func load(t *testing.T) Graph {
	t.Helper()
	work := strings.TrimSpace(string(run(t, ".", "env", "GOWORK")))
	if work == "" || work == "off" {
		t.Fatal("go.work is not in use")
	}
	root := filepath.Dir(work)

	args := []string{"list", "-deps", "-json=ImportPath,Module,Imports,TestImports,XTestImports"}
	for dir := range strings.FieldsSeq(string(run(t, root, "list", "-m", "-f", "{{.Dir}}"))) {
		args = append(args, dir+"/...")
	}
	graph := make(Graph)
	for packages := json.NewDecoder(bytes.NewReader(run(t, root, args...))); ; {
		var p listed
		err := packages.Decode(&p)
		if errors.Is(err, io.EOF) {
			return graph
		}
		if err != nil {
			t.Fatal(err)
		}
		node := Package{Path: p.ImportPath, Imports: p.Imports, TestImports: append(p.TestImports, p.XTestImports...)}
		if p.Module != nil {
			node.Module = p.Module.Path
		}
		graph[p.ImportPath] = node
	}
}

func run(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, &stderr)
	}
	return out
}
