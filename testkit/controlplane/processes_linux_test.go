package controlplane

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/external-secrets/eso/testkit/process"
)

// A test run that times out or is killed cannot call Stop.
func TestDiesWithItsParent(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("etcd and kube-apiserver outlive a killed parent without setpriv (util-linux)")
	}
	assets := assetsForTest(t)
	dir := t.TempDir()
	started := make(chan string, 1)
	parent, err := process.Start(t.Context(), process.Options{
		Name:   "parent",
		Path:   os.Args[0],
		Env:    append(os.Environ(), abandonEnv+"="+dir),
		OnLine: func(line string) { started <- line },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Kill() }()
	select {
	case line := <-started:
		if line != "started" {
			t.Fatal(line)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the control plane did not start")
	}
	if got := len(processesUsing(t, assets, dir)); got != 3 {
		t.Errorf("%d processes run, want 3: %q", got, processesUsing(t, assets, dir))
	}
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the processes to end", func(context.Context) (bool, error) {
		return len(processesUsing(t, assets, dir)) == 0, nil
	})
}

// processesUsing returns the command lines of the processes that run a program
// of assets and name dir in an argument.
func processesUsing(t *testing.T, assets, dir string) []string {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		cmdline, err := os.ReadFile(entry)
		if err != nil {
			continue // It has ended meanwhile.
		}
		words := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
		if strings.HasPrefix(words[0], assets) && strings.Contains(strings.Join(words[1:], " "), dir) {
			found = append(found, strings.Join(words, " "))
		}
	}
	return found
}
