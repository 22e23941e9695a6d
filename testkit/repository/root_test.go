package repository

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRoot(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.work"), []byte("go 1.26.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Run("above the working folder", func(t *testing.T) {
		t.Setenv(RootEnv, "")
		t.Chdir(deep)
		if got, err := Root(); got != root || err != nil {
			t.Errorf("Root = %q, %v; want %q", got, err, root)
		}
	})
	t.Run("nowhere", func(t *testing.T) {
		t.Setenv(RootEnv, "")
		t.Chdir(t.TempDir())
		if _, err := Root(); err == nil || !strings.Contains(err.Error(), RootEnv) {
			t.Errorf("Root: %v; want an error that names %s", err, RootEnv)
		}
	})
	t.Run("a variable that is wrong is not passed over", func(t *testing.T) {
		t.Setenv(RootEnv, deep)
		t.Chdir(root)
		if _, err := Root(); err == nil {
			t.Error("Root took a folder without go.work")
		}
	})
}
