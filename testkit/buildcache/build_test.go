package buildcache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/external-secrets/eso/testkit/repository"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const helloSource = `package main

var greeting = "hello"

func main() { println(greeting) }
`

// sample is a small repository with a nested module to build.
type sample struct {
	*builder
	progress *lines
	module   Module
}

func newSample(t *testing.T) sample {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "go.work"), "go 1.26.0\n")
	write(t, filepath.Join(root, "tools/hello/go.mod"), "module example.test/hello\n\ngo 1.26.0\n")
	write(t, filepath.Join(root, "tools/hello/main.go"), helloSource)
	t.Setenv(repository.RootEnv, root)
	progress := &lines{}
	b, err := newBuilder(progress)
	if err != nil {
		t.Fatal(err)
	}
	b.assets = filepath.Join(t.TempDir(), "assets")
	return sample{
		builder:  b,
		progress: progress,
		module:   Module{Dir: "tools/hello", Programs: map[string]string{"hello": "."}},
	}
}

func (r sample) build(t *testing.T) string {
	t.Helper()
	dir, err := r.builder.build(t.Context(), []Module{r.module})
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return dir
}

// left returns what is in the cache apart from lock files.
func (r sample) left(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(r.assets)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".lock" {
			names = append(names, entry.Name())
		}
	}
	return names
}

func TestBuildOnce(t *testing.T) {
	r := newSample(t)
	dir := r.build(t)
	out, err := exec.Command(filepath.Join(dir, "hello")).CombinedOutput()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("the program says %q, %v", out, err)
	}
	want := []string{
		"building " + dir + "; the first time this downloads what it is made of and takes minutes",
		"building hello from tools/hello",
		"built " + dir + " in ",
	}
	if diff := cmp.Diff(want, r.progress.all(), cmp.Comparer(samePrefix)); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}

	r.progress.reset()
	if again := r.build(t); again != dir {
		t.Errorf("second build is in %s, first in %s", again, dir)
	}
	if got := r.progress.all(); len(got) > 0 {
		t.Errorf("a build that was done already reports %q", got)
	}
}

func TestWhatDecidesABuild(t *testing.T) {
	cases := []struct {
		name   string
		why    string
		change func(t *testing.T, r *sample)
		same   bool
	}{
		{
			name:   "source",
			why:    "the program is another",
			change: func(t *testing.T, r *sample) { r.write(t, "main.go", helloSource+"// changed\n") },
		},
		{
			name:   "go.mod",
			why:    "it chooses the versions",
			change: func(t *testing.T, r *sample) { r.write(t, "go.mod", "module example.test/hi\n\ngo 1.26.0\n") },
		},
		{
			name:   "linker flags",
			why:    "they stamp versions",
			change: func(_ *testing.T, r *sample) { r.module.LDFlags = "-X main.greeting=hi" },
		},
		{
			name:   "program's name",
			why:    "the folder holds another file",
			change: func(_ *testing.T, r *sample) { r.module.Programs = map[string]string{"hi": "."} },
		},
		{
			name:   "a test",
			why:    "no test is in the program",
			change: func(t *testing.T, r *sample) { r.write(t, "main_test.go", "package main\n") },
			same:   true,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newSample(t)
			before, err := r.cacheKey(t.Context(), []Module{r.module})
			if err != nil {
				t.Fatal(err)
			}
			c.change(t, &r)
			after, err := r.cacheKey(t.Context(), []Module{r.module})
			if err != nil {
				t.Fatal(err)
			}
			if same := before == after; same != c.same {
				t.Errorf("same build: %t, want %t because %s", same, c.same, c.why)
			}
		})
	}
}

func TestFailedBuild(t *testing.T) {
	r := newSample(t)
	r.write(t, "main.go", "package main\n\nfunc main() { undefinedFunction() }\n")
	_, err := r.builder.build(t.Context(), []Module{r.module})
	if err == nil || !strings.Contains(err.Error(), "undefined: undefinedFunction") {
		t.Errorf("build = %v; want the compiler's complaint", err)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("a failed build leaves %q", left)
	}
	r.write(t, "main.go", helloSource)
	r.build(t)
}

// The remains of a killed build are not a build.
func TestUnfinishedBuild(t *testing.T) {
	r := newSample(t)
	key, err := r.cacheKey(t.Context(), []Module{r.module})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(r.assets, key+".partial", "garbage"), "")
	dir := r.build(t)
	if diff := cmp.Diff([]string{filepath.Base(dir)}, r.left(t)); diff != "" {
		t.Errorf("cache (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(dir, "garbage")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the build holds what an unfinished one left: %v", err)
	}
}

func TestConcurrentBuilds(t *testing.T) {
	r := newSample(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if _, err := r.builder.build(t.Context(), []Module{r.module}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	builds := 0
	for _, line := range r.progress.all() {
		if line == "building hello from tools/hello" {
			builds++
		}
	}
	if builds != 1 {
		t.Errorf("built %d times, want once:\n%s", builds, strings.Join(r.progress.all(), "\n"))
	}
}

func TestContextEndsTheBuild(t *testing.T) {
	r := newSample(t)
	r.goCommand = filepath.Join(t.TempDir(), "go")
	slow := "#!/bin/sh\n[ \"$1\" = build ] && exec sleep 60\necho go1.26.0\n"
	if err := os.WriteFile(r.goCommand, []byte(slow), 0o700); err != nil {
		t.Fatal(err)
	}
	r.heartbeat = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	alive := "still building hello after 0s"
	r.builder.progress = writerFunc(func(p []byte) {
		if strings.HasPrefix(string(p), alive) {
			cancel()
		}
	})
	begin := time.Now()
	if _, err := r.builder.build(ctx, []Module{r.module}); !errors.Is(err, context.Canceled) {
		t.Errorf("build = %v, want the context's error", err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the build went on for %s", took)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("a build that was cut short leaves %q", left)
	}
}

func TestContextEndsTheWait(t *testing.T) {
	r := newSample(t)
	key, err := r.cacheKey(t.Context(), []Module{r.module})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(r.assets, 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(t.Context(), filepath.Join(r.assets, key+".lock"), r.heartbeat, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := r.builder.build(ctx, []Module{r.module}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("build = %v, want the context's error", err)
	}
	want := []string{"waiting for another process that builds " + filepath.Join(r.assets, key)}
	if diff := cmp.Diff(want, r.progress.all()); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func (r sample) write(t *testing.T, name, content string) {
	t.Helper()
	write(t, filepath.Join(r.root, r.module.Dir, name), content)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// samePrefix lets an expected line leave out its end, such as a duration.
func samePrefix(a, b string) bool {
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// lines is progress that can be looked at.
type lines struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.buffer.String(), func(r rune) bool { return r == '\n' })
}

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer.Reset()
}
