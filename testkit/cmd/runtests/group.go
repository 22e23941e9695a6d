package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/external-secrets/eso/testkit/selection"
)

const (
	// logsEnv names the folder in which each test program logs the files that
	// it opens.
	logsEnv = "RUNTESTS_LOGS"
	// timeout bounds the tests of one package.
	timeout = 40 * time.Minute
	// outputs is the folder of all that tests have left.
	outputs = "outputs"
	// shownFiles is how many files an error names.
	shownFiles = 5
)

// servers is imported by whatever starts servers.
const servers = "github.com/external-secrets/eso/testkit/process"

// A group is packages that are tested with the same flags.
type group struct {
	// Servers says that the tests start servers, and compete for the machine
	// with the programs that they test.
	Servers bool `json:"servers"`
	// Outputs says that the tests read what all others have left.
	Outputs bool `json:"outputs"`
	// Race turns the race detector on.
	Race bool `json:"race"`
	// Packages are import paths.
	Packages []string `json:"packages"`

	tests []selection.Test
}

// flags of go test.
func (g group) flags() []string {
	flags := []string{"-json", "-count=1", "-timeout=" + timeout.String()}
	if g.Race {
		flags = append(flags, "-race")
	}

	// These wait for their programs most of the time.
	if g.Servers {
		flags = append(flags, "-p="+strconv.Itoa(runtime.NumCPU()+1))
	}

	return flags
}

// groupsOf divides the packages with tests into groups.
func groupsOf(ctx context.Context, root string, patterns []string) ([]group, error) {
	race, err := raceDetector(ctx)
	if err != nil {
		return nil, err
	}

	// Groups that fail soonest run first.
	groups := []group{{Race: race}, {Servers: true}, {Outputs: true}}

	version, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "CGO_ENABLED").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot ask for the version of Go: %w", err)
	}

	build := fmt.Sprintf("%s race=%t %s", strings.Join(strings.Fields(string(version)), " "), race, strings.Join(environment(), " "))

	tests, err := selection.Load(ctx, selection.Options{Root: root, Patterns: patterns, Build: build})
	if err != nil {
		return nil, err
	}

	for _, test := range tests {
		at := 0

		switch {
		case test.ReadsOutputs:
			at = 2
		case test.DependsOn(servers):
			at = 1
		}

		groups[at].tests = append(groups[at].tests, test)
	}

	return groups, nil
}

// environment lists the variables of this project, which tests read.
func environment() []string {
	var set []string

	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name == "KUBEBUILDER_ASSETS" || strings.HasPrefix(variable, "ESO_") && !strings.HasPrefix(variable, selection.OutputEnv) || strings.HasPrefix(variable, "EXTERNAL_SECRETS_") {
			set = append(set, variable)
		}
	}

	slices.Sort(set)

	return set
}

// raceDetector reports whether there is one: it needs a C compiler.
func raceDetector(ctx context.Context) (bool, error) {
	output, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		return false, fmt.Errorf("cannot ask for the C compiler: %w", err)
	}

	values := strings.SplitN(string(output), "\n", 2)
	if len(values) < 2 || values[0] != "1" {
		return false, nil
	}

	_, err = exec.LookPath(strings.TrimSpace(values[1]))

	return err == nil, nil
}

// printEvents runs a plan, prints the events of all of its groups, and records
// what has passed. Errors beside those of tests go to standard error, where
// gotestsum counts them.
func printEvents(ctx context.Context, file string) (code int, err error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return 1, fmt.Errorf("cannot read the plan: %w", err)
	}

	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return 1, fmt.Errorf("cannot read the plan: %w", err)
	}

	before, err := groupsOf(ctx, p.Root, p.Patterns)
	if err != nil {
		return 1, err
	}

	logs, err := os.MkdirTemp("", "runtests-")
	if err != nil {
		return 1, fmt.Errorf("cannot create a folder for logs: %w", err)
	}
	defer os.RemoveAll(logs)

	output := &events{to: os.Stdout, passed: map[string]bool{}, skipped: map[string]bool{}}

	// A failure to record does not prevent other tests from running.
	var problems []error

	for _, g := range p.Groups {
		if g.Outputs {
			if err := collect(ctx, p, filepath.Join(logs, outputs)); err != nil {
				return 1, err
			}
		}

		// What fails now has not passed, whatever it did before.
		if err := forget(before, g.Packages); err != nil {
			return 1, err
		}

		failed := g.run(ctx, p.Root, logs, output)

		if err := record(ctx, p, before, output, logs); err != nil {
			problems = append(problems, err)
		}

		var exit *exec.ExitError

		switch {
		case errors.As(failed, &exit):
			code = max(1, exit.ExitCode())
		case failed != nil:
			problems = append(problems, fmt.Errorf("cannot run go test: %w", failed))
		}
	}

	if len(problems) > 0 {
		code = max(1, code)
	}

	return code, errors.Join(problems...)
}

// forget removes the records of packages that are about to be tested.
func forget(groups []group, packages []string) error {
	records, err := selection.OpenRecords()
	if err != nil {
		return err
	}

	for _, g := range groups {
		for _, test := range g.tests {
			if slices.Contains(packages, test.Path) {
				if err := records.Remove(test); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// collect copies what the tests have left that have passed with their present
// inputs, now or before.
func collect(ctx context.Context, p plan, folder string) error {
	records, err := selection.OpenRecords()
	if err != nil {
		return err
	}

	groups, err := groupsOf(ctx, p.Root, p.Patterns)
	if err != nil {
		return err
	}

	for _, g := range groups {
		for _, test := range g.tests {
			if err := records.Output(test, folder); err != nil {
				return err
			}
		}
	}

	return nil
}

func (g group) run(ctx context.Context, root, logs string, output *events) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	args := slices.Concat([]string{"test", "-exec=" + self}, g.flags(), g.Packages)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Stderr = root, os.Stderr
	command.Env = append(os.Environ(), logsEnv+"="+logs)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute

	lines, err := command.StdoutPipe()
	if err != nil {
		return err
	}

	if err := command.Start(); err != nil {
		return err
	}

	return errors.Join(output.copy(lines), command.Wait())
}

// record records the tests that have passed. Where the inputs of a test have
// changed meanwhile, it is unknown which of them have passed. A test that opens
// a file which is not declared fails: a change of the file would not run it.
func record(ctx context.Context, p plan, before []group, output *events, logs string) error {
	records, err := selection.OpenRecords()
	if err != nil {
		return err
	}

	after, err := groupsOf(ctx, p.Root, p.Patterns)
	if err != nil {
		return err
	}

	keys := map[string]string{}
	for _, g := range before {
		for _, test := range g.tests {
			keys[test.Path] = test.Key
		}
	}

	var undeclared []error

	for _, g := range after {
		for _, test := range g.tests {
			if !output.passed[test.Path] || output.skipped[test.Path] || test.ReadsOutputs || keys[test.Path] != test.Key {
				continue
			}

			dir := filepath.Join(p.Root, filepath.FromSlash(test.Folder))

			log, err := os.ReadFile(filepath.Join(logs, logName(dir)))
			if err != nil {
				return fmt.Errorf("cannot read what a test has opened: %w", err)
			}

			if files := selection.Undeclared(p.Root, dir, test, log); len(files) > 0 {
				undeclared = append(undeclared, fmt.Errorf("the tests of %s read files that are not declared, such as %s: add a comment //test:inputs to one of its Go files (see package selection)",
					test.Folder, strings.Join(files[:min(len(files), shownFiles)], ", ")))

				continue
			}

			if err := records.Add(test, filepath.Join(logs, logName(dir)+".output")); err != nil {
				return err
			}
		}
	}

	return errors.Join(undeclared...)
}

// events passes the lines of several commands on, each whole, and notes which
// packages have passed.
type events struct {
	mu     sync.Mutex
	to     io.Writer
	passed map[string]bool
	// skipped are packages with a test that was skipped: it may run on another
	// machine, or with other tools.
	skipped map[string]bool
}

// copy passes on all lines of a command.
func (e *events) copy(from io.Reader) error {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := e.line(line); err != nil {
				return err
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}
	}
}

func (e *events) line(line []byte) error {
	var event struct {
		Action  string `json:"Action"`
		Package string `json:"Package"`
		Test    string `json:"Test"`
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	// Lines that are not events are reported by gotestsum.
	if err := json.Unmarshal(line, &event); err == nil {
		switch {
		case event.Test == "" && event.Action == "pass":
			e.passed[event.Package] = true
		case event.Test != "" && event.Action == "skip":
			e.skipped[event.Package] = true
		}
	}

	_, err := e.to.Write(line)

	return err
}

// logName is the name of the log of a test program that runs in a folder.
func logName(dir string) string {
	sum := sha256.Sum256([]byte(dir))

	return hex.EncodeToString(sum[:])
}

// runLogged replaces this process by a test program that logs which files it
// opens. It returns only where that fails.
func runLogged(logs string, args []string) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("cannot find the folder of a test: %w", err)
	}

	args = append(slices.Clone(args), "-test.testlogfile="+filepath.Join(logs, logName(dir)))

	output := filepath.Join(logs, logName(dir)+".output")
	if err := os.MkdirAll(output, 0o755); err != nil {
		return fmt.Errorf("cannot create a folder for the output of a test: %w", err)
	}

	environment := append(withoutLogs(os.Environ()), selection.OutputEnv+"="+output, selection.OutputsEnv+"="+filepath.Join(logs, outputs))
	err = syscall.Exec(args[0], args, environment) //nolint:gosec // go test names the program that it has built

	return fmt.Errorf("cannot run %s: %w", args[0], err)
}

// withoutLogs keeps the variable from programs that a test starts: this one
// could be among them.
func withoutLogs(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool { return strings.HasPrefix(variable, logsEnv+"=") })
}
