// Package repository finds the repository that a program was started in.
package repository

import (
	"fmt"
	"os"
	"path/filepath"
)

// RootEnv names the environment variable that says where the repository is,
// for programs that run outside it.
const RootEnv = "ESO_ROOT"

// Root is the repository's folder: that of RootEnv, or the nearest one with a
// go.work at or above the working directory.
func Root() (string, error) {
	if root := os.Getenv(RootEnv); root != "" {
		if !isRoot(root) {
			return "", fmt.Errorf("cannot use %s=%s: there is no go.work in it", RootEnv, root)
		}

		return root, nil
	}

	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the repository: %w", err)
	}

	for dir := start; ; dir = filepath.Dir(dir) {
		if isRoot(dir) {
			return dir, nil
		}

		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("cannot find the repository: no go.work at or above %s; set %s", start, RootEnv)
		}
	}
}

func isRoot(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "go.work"))

	return err == nil && info.Mode().IsRegular()
}
