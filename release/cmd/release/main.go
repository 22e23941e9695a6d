// Command release reports on the modules of this repository: what has changed
// since each was released, and whether versions and requirements agree. It
// changes nothing but the files that are generated from metadata.yaml files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/external-secrets/eso/release/internal/consistency"
	"github.com/external-secrets/eso/release/internal/history"
	"github.com/external-secrets/eso/release/internal/language"
	"github.com/external-secrets/eso/release/internal/trains"
	"github.com/external-secrets/eso/release/internal/workspace"
	"github.com/external-secrets/eso/release/metadata"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

const usage = `usage: release [--version] COMMAND

  status   show each module, its next version, its last tag, and how many
           commits touched it since
  check    compare release/trains.yaml, go.work and the go.mod files
  metadata write what is made from the metadata.yaml of providers: the tables in
           their READMEs and docs/providers.md, and CODEOWNERS
  language find words that comments, messages and pages avoid
`

// errUsage asks for the usage text; it has been shown when this is returned.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	showVersion := flags.Bool("version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	if *showVersion {
		fmt.Fprintf(stdout, "release %s (%s)\n", version, commit)
		return nil
	}
	command := flags.Arg(0)
	if flags.NArg() != 1 || command != "status" && command != "check" && command != "metadata" && command != "language" {
		flags.Usage()
		return errUsage
	}

	root, err := workspace.Root(".")
	if err != nil {
		return err
	}
	if command == "metadata" {
		return metadata.Write(root)
	}
	if command == "language" {
		findings, err := language.Check(root)
		return errors.Join(err, language.Errors(findings))
	}
	released, err := trains.Load(filepath.Join(root, trains.File))
	if err != nil {
		return err
	}
	if command == "status" {
		return status(ctx, root, released, stdout)
	}
	return check(root, released, stdout)
}

func status(ctx context.Context, root string, released []trains.Train, stdout io.Writer) error {
	git := history.History{Root: root}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODULE\tVERSION\tLAST TAG\tCOMMITS SINCE")
	for _, t := range released {
		tag, err := git.LastTag(ctx, t.TagPrefix)
		if err != nil {
			return fmt.Errorf("cannot find the last release of %s: %w", t.Path, err)
		}
		commits, err := git.Commits(ctx, tag, t.Path, nested(released, t.Path)...)
		if err != nil {
			return fmt.Errorf("cannot count the changes of %s: %w", t.Path, err)
		}
		if tag == "" {
			tag = "none"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", t.Path, t.Version, tag, commits)
	}
	return table.Flush()
}

// nested returns the modules inside of another: they are released on their own.
func nested(released []trains.Train, dir string) []string {
	var inside []string
	for _, t := range released {
		if strings.HasPrefix(t.Path, dir+"/") {
			inside = append(inside, t.Path)
		}
	}
	return inside
}

func check(root string, released []trains.Train, stdout io.Writer) error {
	modules, err := workspace.Modules(root)
	if err != nil {
		return err
	}
	problems := consistency.Check(released, modules, func(dir string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(dir), "CHANGELOG.md"))
		return err == nil
	})
	if len(problems) > 0 {
		return fmt.Errorf("%d problems:\n  %s", len(problems), strings.Join(problems, "\n  "))
	}
	fmt.Fprintf(stdout, "%d modules agree with %s\n", len(modules), trains.File)
	return nil
}
