package buildcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A folder is filled once, as a whole; one that could not be filled is tried
// again.
func TestMake(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())

	fills, fault := 0, errors.New("no space left")
	fill := func(_ context.Context, dir string) error {
		fills++

		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			return err
		}

		return fault
	}

	if _, err := Make(t.Context(), "key", t.Output(), fill); !errors.Is(err, fault) {
		t.Errorf("a fill that fails: %v", err)
	}

	fault = nil

	for range 2 {
		dir, err := Make(t.Context(), "key", t.Output(), fill)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
			t.Error(err)
		}
	}

	if fills != 2 {
		t.Errorf("it was filled %d times", fills)
	}
}
