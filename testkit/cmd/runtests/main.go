// Command runtests runs the tests that a change can affect: those of every
// package whose inputs differ, by content, from what last passed on this
// machine. It lists the packages that it leaves out, each with the hash that
// passed (see package selection).
//
//	runtests [--all] [--complete] --gotestsum=PATH PACKAGE...
//	runtests [--all] --list PACKAGE...
//
// Tests that start servers run without the race detector and fewer packages at
// a time; all others with it, where there is a C compiler. The last line of the
// output counts the tests: N passed, N failed, N skipped.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/external-secrets/eso/testkit/repository"
	"github.com/external-secrets/eso/testkit/selection"
)

// summary is the last line; gotestsum provides the counts.
const summary = `echo $((TESTS_TOTAL - TESTS_FAILED - TESTS_SKIPPED)) passed, $((TESTS_FAILED + TESTS_ERRORS)) failed, $TESTS_SKIPPED skipped`

func main() {
	// "go test -exec" runs this program in place of the one it has built.
	if folder := os.Getenv(logsEnv); folder != "" && len(os.Args) > 1 && filepath.IsAbs(os.Args[1]) {
		fmt.Fprintln(os.Stderr, runLogged(folder, os.Args[1:]))
		os.Exit(1)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
	}

	os.Exit(code)
}

// A plan is what to run.
type plan struct {
	// Root is the repository's folder.
	Root string `json:"root"`
	// Patterns of packages that were chosen from.
	Patterns []string `json:"patterns"`
	// Groups are run one after the other.
	Groups []group `json:"groups"`
}

// run selects tests, and has gotestsum run them through this program.
func run(ctx context.Context, args []string) (code int, err error) {
	flags := flag.NewFlagSet("runtests", flag.ContinueOnError)
	all := flags.Bool("all", false, "run the tests of unchanged packages, too")
	complete := flags.Bool("complete", false, "the packages are all there are: tests that read the outputs of all others run")
	only := flags.Bool("list", false, "print the packages that have to run, and run nothing")
	gotestsum := flags.String("gotestsum", "", "`path` of gotestsum")
	events := flags.String("events", "", "run the plan in this `file` and print the events of go test")

	if err := flags.Parse(args); err != nil {
		return 2, nil // flags has printed it
	}

	if *events != "" {
		return printEvents(ctx, *events)
	}

	if (*gotestsum == "" && !*only) || flags.NArg() == 0 {
		return 2, errors.New("no --gotestsum, or no packages: usage: runtests [--all] [--complete] --gotestsum=PATH PACKAGE")
	}

	root, err := repository.Root()
	if err != nil {
		return 1, err
	}

	notes := io.Writer(os.Stdout)
	if *only {
		notes = io.Discard
	}

	selected, err := choose(ctx, notes, root, flags.Args(), *all, *complete)
	if err != nil {
		return 1, err
	}

	if *only {
		for _, g := range selected.Groups {
			fmt.Println(strings.Join(g.Packages, "\n"))
		}

		return 0, nil
	}

	text, err := json.Marshal(selected)
	if err != nil {
		return 1, fmt.Errorf("cannot write the plan: %w", err)
	}

	file, err := os.CreateTemp("", "runtests-*.json")
	if err != nil {
		return 1, fmt.Errorf("cannot write the plan: %w", err)
	}
	defer os.Remove(file.Name())

	_, err = file.Write(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return 1, fmt.Errorf("cannot write the plan: %w", err)
	}

	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("cannot find this program: %w", err)
	}

	command := exec.CommandContext(ctx, *gotestsum, "--format=pkgname", "--format-hide-empty-pkg", "--hide-summary=skipped",
		"--post-run-command=sh -c '"+summary+"'", "--raw-command", "--", self, "--events", file.Name())
	command.Stdout, command.Stderr, command.Dir = os.Stdout, os.Stderr, root
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }

	if err := command.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return max(1, exit.ExitCode()), nil
		}

		return 1, fmt.Errorf("cannot run gotestsum: %w", err)
	}

	return 0, nil
}

// choose plans the tests that have to run, and prints which have not.
func choose(ctx context.Context, notes io.Writer, root string, patterns []string, all, complete bool) (plan, error) {
	records, err := selection.OpenRecords()
	if err != nil {
		return plan{}, err
	}

	chosen := plan{Root: root, Patterns: patterns}

	groups, err := groupsOf(ctx, root, patterns)
	if err != nil {
		return plan{}, err
	}

	left := 0

	for _, g := range groups {
		var paths []string

		for _, test := range g.tests {
			if test.ReadsOutputs && !complete {
				fmt.Fprintf(notes, "left out: %s, which judges all tests together\n", test.Folder)

				left++

				continue
			}

			passed, err := records.Passed(test)
			if err != nil {
				return plan{}, err
			}

			if passed && !all && !test.ReadsOutputs {
				fmt.Fprintf(notes, "unchanged since it passed: %s (%.12s)\n", test.Folder, test.Key)

				left++

				continue
			}

			paths = append(paths, test.Path)
		}

		if len(paths) > 0 {
			g.Packages = paths
			chosen.Groups = append(chosen.Groups, g)
		}
	}

	total := 0
	for _, g := range groups {
		total += len(g.tests)
	}

	fmt.Fprintf(notes, "%d of %d packages with tests have to run; --all runs the others, too\n", total-left, total)

	return chosen, nil
}
