// Command provider-conformance tests whether a provider keeps the protocol, in
// whatever language it is written.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/external-secrets/eso/sdk/internal/kit"
)

// Stamped by the linker.
var (
	version = "0.0.0-dev"
	commit  = "unknown"
)

// Exit statuses.
const (
	conformant    = 0
	notConformant = 1
	noVerdict     = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)

	stop()
	os.Exit(code)
}

const usage = `provider-conformance tests a provider against the protocol:

    provider-conformance [flags] target.yaml

The target says where the provider is, or how to start it, and what its backend
holds. The exit status is 0 where nothing failed, 1 where something did, and 2
where nothing could be tested.

`

// arguments of a command line.
type arguments struct {
	list, version    bool
	only             string
	asJSON, markdown string
	output           string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var given arguments

	flags := flag.NewFlagSet("provider-conformance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&given.list, "list", false, "print the tests and exit")
	flags.BoolVar(&given.version, "version", false, "print the version and exit")
	flags.StringVar(&given.only, "run", "", "run the tests whose id matches this regular expression")
	flags.StringVar(&given.asJSON, "report-json", "", "file to write the report to, as JSON")
	flags.StringVar(&given.markdown, "report-markdown", "", "file to write the report to, as Markdown")
	flags.StringVar(&given.output, "provider-output", "", "file to write to what the provider prints, where the kit starts it; it may hold what the provider should not print")

	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return conformant
	} else if err != nil {
		return noVerdict
	}

	switch {
	case given.version:
		fmt.Fprintf(stdout, "provider-conformance %s (%s)\n", version, commit)

		return conformant
	case given.list:
		list(stdout)

		return conformant
	case flags.NArg() != 1:
		fmt.Fprintln(stderr, "provider-conformance: name one file with the target; --help says more")

		return noVerdict
	}

	report, err := test(ctx, given, args, flags.Arg(0), stdout)
	if err == nil {
		err = given.write(report)
	}

	if err != nil {
		fmt.Fprintf(stderr, "provider-conformance: %v\n", err)

		return noVerdict
	}

	fmt.Fprintf(stdout, "%s %s: %d passed, %d failed, %d skipped, %d not exercised, in %.1f s\n",
		report.Provider.Name, report.Provider.Version, report.Counts.Passed, report.Counts.Failed, report.Counts.Skipped, report.Counts.NotExercised, report.Seconds)

	if !report.Conformant {
		return notConformant
	}

	return conformant
}

func list(w io.Writer) {
	for _, test := range kit.Tests() {
		fmt.Fprintf(w, "%s\n    %s\n", test.ID, test.Why)
	}
}

func test(ctx context.Context, given arguments, args []string, file string, stdout io.Writer) (_ kit.Report, err error) {
	options := kit.Options{Progress: stdout, CommandLine: append([]string{"provider-conformance"}, args...), Version: version}

	if given.only != "" {
		if options.Only, err = regexp.Compile(given.only); err != nil {
			return kit.Report{}, fmt.Errorf("--run: %w", err)
		}
	}

	target, err := kit.Load(file)
	if err != nil {
		return kit.Report{}, err
	}

	if given.output != "" {
		output, err := os.OpenFile(filepath.Clean(given.output), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return kit.Report{}, fmt.Errorf("--provider-output: %w", err)
		}
		defer output.Close()

		options.Output = output
	}

	return kit.Run(ctx, target, options)
}

// write writes the requested reports.
func (given arguments) write(report kit.Report) error {
	if given.asJSON != "" {
		text, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return fmt.Errorf("cannot encode the report: %w", err)
		}

		if err := os.WriteFile(given.asJSON, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("--report-json: %w", err)
		}
	}

	if given.markdown != "" {
		if err := os.WriteFile(given.markdown, []byte(report.Markdown()), 0o644); err != nil {
			return fmt.Errorf("--report-markdown: %w", err)
		}
	}

	return nil
}
