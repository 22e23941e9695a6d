package installation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/external-secrets/eso/release/metadata"

	"github.com/external-secrets/eso/testkit/buildcache"
	"github.com/external-secrets/eso/testkit/repository"
)

// BinariesEnv names a folder with the programs, for callers that have built
// them already, as Bazel has.
const BinariesEnv = "ESO_BINARIES"

// operatorProgram is the name of the operator's command.
const operatorProgram = "external-secrets"

// Build returns a folder with the operator and the programs of the given
// providers and generators: that of BinariesEnv, or dir after a build. What is
// built is kept in the user's cache, so that only what has changed is linked
// again; dir holds links, which later builds leave alone. Callers that start
// several installations need Build only once.
func Build(ctx context.Context, dir string, providers []string, progress io.Writer) (string, error) {
	root, err := repository.Root()
	if err != nil {
		return "", err
	}

	packages := map[string]string{operatorProgram: "./core/cmd/" + operatorProgram}

	for _, name := range providers {
		m, err := described(root, name)
		if err != nil {
			return "", err
		}

		packages[m.Program()] = m.Package()
	}

	if given := os.Getenv(BinariesEnv); given != "" {
		for program := range packages {
			if _, err := os.Stat(filepath.Join(given, program)); err != nil {
				return "", fmt.Errorf("cannot use %s: %w", BinariesEnv, err)
			}
		}

		return given, nil
	}

	return dir, BuildPackages(ctx, dir, packages, progress)
}

// BuildPackages builds main packages of the repository, by the name of the
// program, into dir, as Build does.
func BuildPackages(ctx context.Context, dir string, packages map[string]string, progress io.Writer) error {
	root, err := repository.Root()
	if err != nil {
		return err
	}

	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("cannot find the user's cache folder: %w", err)
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot create the folder for programs: %w", err)
	}

	// Each checkout has its own, or they would replace each other's programs.
	sum := sha256.Sum256([]byte(root))
	built := filepath.Join(cache, "external-secrets", "programs", hex.EncodeToString(sum[:8]))

	if err := os.MkdirAll(built, 0o755); err != nil {
		return fmt.Errorf("cannot create the folder for programs: %w", err)
	}

	unlock, err := buildcache.Lock(ctx, built+".lock", progress)
	if err != nil {
		return err
	}
	defer unlock()

	began := time.Now()
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", built + string(filepath.Separator)}
	names := make([]string, 0, len(packages))

	for name, path := range packages {
		names, args = append(names, name), append(args, path)
	}

	slices.Sort(names)
	slices.Sort(args[5:])
	fmt.Fprintf(progress, "building %s ...\n", strings.Join(names, ", "))

	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK="+filepath.Join(root, "go.work"))

	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", strings.Join(names, ", "), err, strings.TrimSpace(string(output)))
	}

	for _, name := range names {
		if err := link(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("cannot keep the program %s: %w", name, err)
		}
	}

	fmt.Fprintf(progress, "built in %s\n", time.Since(began).Round(time.Second/10))

	return nil
}

// link creates a hard link of a file, or a copy on another file system. A
// build replaces the file under its first name and does not write into it.
func link(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	if err := os.Link(from, to); err == nil {
		return nil
	}

	source, err := os.Open(filepath.Clean(from))
	if err != nil {
		return err
	}
	defer source.Close()

	target, err := os.OpenFile(filepath.Clean(to), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}

	_, err = io.Copy(target, source)

	return errors.Join(err, target.Close())
}

// described returns the metadata of a provider or generator.
func described(root, name string) (metadata.Metadata, error) {
	all, err := metadata.All(root)
	if err != nil {
		return metadata.Metadata{}, err
	}

	at := slices.IndexFunc(all, func(m metadata.Metadata) bool { return m.Name == name })
	if at < 0 {
		return metadata.Metadata{}, fmt.Errorf("cannot find provider %q: no metadata.yaml of the repository has this name", name)
	}

	return all[at], nil
}
