package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// roleEnv makes the test binary play the child that the variable names.
const roleEnv = "PROCESS_TEST_ROLE"

var roles = map[string]func(){
	"polite": func() {
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		fmt.Println("ready")
		<-term
		fmt.Println("bye")
	},
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	},
	"failing": func() {
		fmt.Println("to standard output")
		fmt.Fprint(os.Stderr, "to standard error, without a newline")
		os.Exit(3)
	},
	"reader": func() {
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		fmt.Println("end of input")
	},
	"environment": func() {
		dir, _ := os.Getwd()
		fmt.Println(os.Getenv("COLOUR"), filepath.Base(dir), strings.Join(os.Args[1:], " "))
	},
	// parent starts a child and waits to be killed.
	"parent": func() {
		child, err := Start(context.Background(), Options{
			Name: "child", Path: os.Args[0], Env: []string{roleEnv + "=stubborn"}, Log: os.Stdout,
		})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("child", child.PID())
		time.Sleep(time.Hour)
	},
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		roles[role]()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// startRole starts a child and waits for its first line.
func startRole(t *testing.T, role string, opts Options) *Process {
	t.Helper()
	first := make(chan struct{})
	var once sync.Once
	onLine := opts.OnLine
	opts.OnLine = func(line string) {
		if onLine != nil {
			onLine(line)
		}
		once.Do(func() { close(first) })
	}
	opts.Name, opts.Path = role, os.Args[0]
	if opts.Env == nil {
		opts.Env = []string{roleEnv + "=" + role}
	}
	p, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-first:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s says nothing", role)
	}
	return p
}

func wait(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("the process does not end")
	}
}

// alive reports whether a process exists; a child that was waited for does not.
func alive(pid int) bool {
	return syscall.Kill(pid, 0) == nil
}

func TestStop(t *testing.T) {
	p := startRole(t, "polite", Options{})
	if err := p.Err(); err != nil {
		t.Errorf("Err of a running process: %v", err)
	}
	if !alive(p.PID()) {
		t.Error("the process does not run")
	}
	if err := p.Stop(30 * time.Second); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if alive(p.PID()) {
		t.Error("the process runs after Stop")
	}
	if err := p.Err(); err != nil {
		t.Errorf("Err of a process that ended well: %v", err)
	}
	if diff := cmp.Diff([]string{"ready", "bye"}, p.LogTail(10)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if err := errors.Join(p.Stop(0), p.Kill()); err != nil {
		t.Errorf("ending a process that has ended: %v", err)
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	p := startRole(t, "stubborn", Options{})
	err := p.Stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "cannot stop stubborn within 50ms") {
		t.Errorf("Stop = %v; want an error that says it was killed", err)
	}
	if alive(p.PID()) {
		t.Error("the process runs after Stop")
	}
}

func TestKill(t *testing.T) {
	p := startRole(t, "stubborn", Options{})
	if err := p.Kill(); err != nil {
		t.Errorf("Kill: %v", err)
	}
	if alive(p.PID()) {
		t.Error("the process runs after Kill")
	}
	if err := p.Err(); err == nil || err.Error() != "stubborn ended: signal: killed" {
		t.Errorf("Err = %v", err)
	}
}

func TestOutput(t *testing.T) {
	var log bytes.Buffer
	p := startRole(t, "failing", Options{Log: &log})
	wait(t, p)
	if err := p.Err(); err == nil || err.Error() != "failing ended: exit status 3" {
		t.Errorf("Err = %v", err)
	}
	want := "[failing] to standard output\n[failing] to standard error, without a newline\n"
	if diff := cmp.Diff(want, log.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"to standard error, without a newline"}, p.LogTail(1)); diff != "" {
		t.Errorf("tail (-want +got):\n%s", diff)
	}
}

func TestEnvironment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "here")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := startRole(t, "environment", Options{
		Dir:  dir,
		Args: []string{"first", "second"},
		Env:  []string{roleEnv + "=environment", "COLOUR=blue"},
	})
	wait(t, p)
	if diff := cmp.Diff([]string{"blue here first second"}, p.LogTail(10)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestStandardInput(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		p := startRole(t, "reader", Options{})
		wait(t, p)
	})
	t.Run("held until Stop", func(t *testing.T) {
		p := startRole(t, "reader", Options{HoldStdin: true})
		select {
		case <-p.Done():
			t.Fatal("the input ended early")
		case <-time.After(100 * time.Millisecond):
		}
		if err := p.Stop(30 * time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestStartFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if p, err := Start(t.Context(), Options{Name: "ghost", Path: missing, HoldStdin: true}); p != nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start = %v, %v; want a not-exist error", p, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, err := Start(ctx, Options{Name: "late", Path: os.Args[0]}); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Start = %v, %v; want the context's error", p, err)
	}
}

// A process is stopped in a test's cleanup, after the test's context has ended.
func TestContextEndsOnlyTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, Options{Name: "stubborn", Path: os.Args[0], Env: []string{roleEnv + "=stubborn"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-p.Done():
		t.Error("the process ended with the context")
	case <-time.After(100 * time.Millisecond):
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

func TestLines(t *testing.T) {
	cases := []struct {
		name   string
		why    string
		pieces []string
		want   []string
	}{
		{
			name:   "pieces",
			why:    "a pipe knows no lines",
			pieces: []string{"on", "e\ntwo", "\n", "three\nfo"},
			want:   []string{"one", "two", "three", "fo"},
		},
		{
			name:   "empty and carriage return",
			why:    "programs that think they write to a terminal end lines with both",
			pieces: []string{"\n\r\na\r\n"},
			want:   []string{"", "", "a"},
		},
		{
			name:   "no newline in a long time",
			why:    "memory must not grow with it",
			pieces: []string{strings.Repeat("x", maxLine), "y\n"},
			want:   []string{strings.Repeat("x", maxLine), "y"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := NewOutput("child", nil)
			for _, piece := range c.pieces {
				if n, err := o.Write([]byte(piece)); n != len(piece) || err != nil {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			o.flush()
			if diff := cmp.Diff(c.want, o.Tail(keptLines)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.why, diff)
			}
		})
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	o := NewOutput("child", nil)
	for i := range keptLines + 5 {
		fmt.Fprintln(o, i)
	}
	if diff := cmp.Diff([]string{strconv.Itoa(keptLines + 3), strconv.Itoa(keptLines + 4)}, o.Tail(2)); diff != "" {
		t.Errorf("tail (-want +got):\n%s", diff)
	}
	all := o.Tail(keptLines * 2)
	if len(all) != keptLines || all[0] != "5" {
		t.Errorf("the tail has %d lines and begins with %q", len(all), all[0])
	}
	if got := o.Tail(-1); len(got) != 0 {
		t.Errorf("Tail(-1) = %q", got)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

// A child must not get a broken pipe because its log cannot be written.
func TestBrokenLog(t *testing.T) {
	p := startRole(t, "polite", Options{Log: brokenWriter{}})
	if err := p.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
}
