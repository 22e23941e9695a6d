// Package scaffold tests what esoctl provider init creates, as the author of a
// provider uses it: with the go command alone.
//
//test:inputs api/**/*.go api/go.mod api/go.sum sdk/**/*.go sdk/go.mod sdk/go.sum providers/fake/go.mod providers/fake/go.sum
//test:programs cli/cmd/esoctl
package scaffold

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/external-secrets/eso/release/metadata"
	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/repository"
)

// A new provider builds and conforms without changes.
func TestProviderInit(t *testing.T) {
	t.Parallel()

	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}

	bin := t.TempDir()
	if err := installation.BuildPackages(t.Context(), bin, map[string]string{"esoctl": "./cli/cmd/esoctl"}, os.Stderr); err != nil {
		t.Fatal(err)
	}

	esoctl, dir := filepath.Join(bin, "esoctl"), filepath.Join(t.TempDir(), "acme")
	began := time.Now()

	if output, err := exec.CommandContext(t.Context(), esoctl, "provider", "init", "acme", "--root", root, "--dir", dir).CombinedOutput(); err != nil {
		t.Fatalf("esoctl provider init: %v\n%s", err, output)
	}

	t.Logf("esoctl provider init: %s", time.Since(began).Round(100*time.Millisecond))

	if err := metadata.CheckLayout(dir); err != nil {
		t.Error(err)
	}

	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "-v", "./..."}} {
		began := time.Now()
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")

		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
		}

		t.Logf("go %s: %s", args[0], time.Since(began).Round(100*time.Millisecond))

		if args[0] == "test" && !strings.Contains(string(output), "--- PASS: TestConformance") {
			t.Errorf("the kit did not run:\n%s", output)
		}
	}
}
