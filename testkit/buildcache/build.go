package buildcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/external-secrets/eso/testkit/process"
	"github.com/external-secrets/eso/testkit/repository"
)

const (
	heartbeat   = 20 * time.Second
	stopTimeout = 5 * time.Second
	errorLines  = 20
)

// A Module is a nested Go module and what to build from it.
type Module struct {
	// Dir is the module's folder, relative to the repository's root, with
	// slashes.
	Dir string
	// Programs maps the file name of each program to its package path.
	Programs map[string]string
	// LDFlags are passed to the linker, for instance to stamp a version.
	LDFlags string
}

// Build returns the folder that holds the programs of all modules, building
// them if this machine has not done so before. What is built is identified by
// everything that decides it: the modules' files, the flags, the platform and
// the version of Go.
//
// Any number of processes may call Build at the same time: one builds, the
// others wait for it. A build that fails or is cut short leaves nothing
// behind, and the next call starts again. Ending ctx ends the build.
//
// Progress receives one line per step, and a sign of life every 20 seconds of
// a long one or of waiting for another process; nothing when all is there already. It may be nil.
func Build(ctx context.Context, modules []Module, progress io.Writer) (string, error) {
	var names []string
	for _, m := range modules {
		names = append(names, programNames(m)...)
	}
	b, err := newBuilder(progress)
	if err == nil {
		var dir string
		if dir, err = b.build(ctx, modules); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("cannot build %s: %w", strings.Join(names, ", "), err)
}

// builder holds what all builds of a machine have in common.
type builder struct {
	goCommand string
	root      string // Of the repository.
	assets    string // Where what is built goes.
	progress  io.Writer
	heartbeat time.Duration
}

func newBuilder(progress io.Writer) (*builder, error) {
	if progress == nil {
		progress = io.Discard
	}
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return nil, fmt.Errorf("cannot find the go command: %w", err)
	}
	root, err := repository.Root()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("cannot find the user's cache folder: %w", err)
	}
	return &builder{
		goCommand: goCommand,
		root:      root,
		assets:    filepath.Join(cache, "external-secrets", "assets"),
		progress:  progress,
		heartbeat: heartbeat,
	}, nil
}

// Make returns the folder of a key, and has it filled first if this machine has
// not done so before: what the folder holds must follow from the key alone. For
// the rest it is as Build.
func Make(ctx context.Context, key string, progress io.Writer, fill func(ctx context.Context, dir string) error) (string, error) {
	b, err := newBuilder(progress)
	if err == nil {
		var dir string
		if dir, err = b.once(ctx, key, fill); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("cannot create %s: %w", key, err)
}

func (b *builder) build(ctx context.Context, modules []Module) (string, error) {
	key, err := b.cacheKey(ctx, modules)
	if err != nil {
		return "", err
	}
	return b.once(ctx, key, func(ctx context.Context, dir string) error {
		for _, m := range modules {
			for _, name := range programNames(m) {
				if err := b.buildProgram(ctx, m, name, dir); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// once fills the folder of a key unless it is there.
func (b *builder) once(ctx context.Context, key string, fill func(ctx context.Context, dir string) error) (string, error) {
	dir := filepath.Join(b.assets, key)
	if complete(dir) {
		return dir, nil
	}

	if err := os.MkdirAll(b.assets, 0o755); err != nil {
		return "", fmt.Errorf("cannot create the folder for built programs: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock", b.heartbeat, func() {
		b.report("waiting for another process that builds %s", dir)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(dir) {
		return dir, nil
	}

	// A process that was killed while it built may have left its folder; under
	// the lock no other process can be using it.
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("cannot remove an unfinished build: %w", err)
	}
	defer os.RemoveAll(partial)
	if err := os.Mkdir(partial, 0o755); err != nil {
		return "", fmt.Errorf("cannot create the folder for built programs: %w", err)
	}
	begin := time.Now()
	b.report("building %s; the first time this downloads what it is made of and takes minutes", dir)
	if err := fill(ctx, partial); err != nil {
		return "", err
	}
	if err := os.Rename(partial, dir); err != nil {
		return "", fmt.Errorf("cannot put the built programs in place: %w", err)
	}
	b.report("built %s in %s", dir, time.Since(begin).Round(time.Second))
	return dir, nil
}

func (b *builder) report(format string, args ...any) {
	// Progress that cannot be shown is no reason not to build.
	_, _ = fmt.Fprintf(b.progress, format+"\n", args...)
}

// complete reports whether a finished build is there. Folders get their final
// name only when they are complete.
func complete(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

func (b *builder) buildProgram(ctx context.Context, m Module, name, out string) error {
	begin := time.Now()
	b.report("building %s from %s", name, m.Dir)
	p, err := process.Start(ctx, process.Options{
		Name: "go build " + name,
		Path: b.goCommand,
		// The folder is no repository of its own, so there is no version
		// control stamp to make.
		Args: []string{"build", "-buildvcs=false", "-trimpath", "-ldflags", m.LDFlags, "-o", filepath.Join(out, name), m.Programs[name]},
		Env:  goEnv(),
		Dir:  filepath.Join(b.root, filepath.FromSlash(m.Dir)),
	})
	if err != nil {
		return err
	}
	ticker := time.NewTicker(b.heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-p.Done():
			if err := p.Err(); err != nil {
				return fmt.Errorf("%w; its last output:\n%s", err, strings.Join(p.LogTail(errorLines), "\n"))
			}
			return nil
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.Stop(stopTimeout))
		case <-ticker.C:
			b.report("still building %s after %s", name, time.Since(begin).Round(time.Second))
		}
	}
}

// goEnv is the environment of every go command: the nested module alone
// decides what is built, for this machine, without a C compiler.
func goEnv() []string {
	return append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
}

// cacheKey identifies a build by all that decides its outcome.
func (b *builder) cacheKey(ctx context.Context, modules []Module) (string, error) {
	hash := sha256.New()
	for _, m := range modules {
		dir := filepath.Join(b.root, filepath.FromSlash(m.Dir))
		version, err := b.goVersion(ctx, dir)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%q %q %q %q %q %q\n", m.Dir, m.LDFlags, m.Programs, version, runtime.GOOS, runtime.GOARCH)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", fmt.Errorf("cannot read the module: %w", err)
		}
		for _, entry := range entries {
			if !decidesBuild(entry) {
				continue
			}
			content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return "", fmt.Errorf("cannot read the module: %w", err)
			}
			fmt.Fprintf(hash, "%q %x\n", entry.Name(), sha256.Sum256(content))
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:20], nil
}

func decidesBuild(entry fs.DirEntry) bool {
	name := entry.Name()
	return name == "go.mod" || name == "go.sum" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

// goVersion asks in the module's folder, because its go.mod may choose another
// toolchain than the one that is installed.
func (b *builder) goVersion(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, b.goCommand, "env", "GOVERSION")
	cmd.Dir = dir
	cmd.Env = goEnv()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the version of Go in %s: %w", dir, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func programNames(m Module) []string {
	names := make([]string, 0, len(m.Programs))
	for name := range m.Programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
