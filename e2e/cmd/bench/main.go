// Command bench measures how fast the product syncs and what it costs: a
// control plane, a Vault, the operator and a provider run on this machine, each
// a process of its own with its default flags, and the figures are compared
// with targets. See docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/external-secrets/eso/e2e/measure"
	"github.com/external-secrets/eso/e2e/report"
	"github.com/external-secrets/eso/testkit/installation"
)

// maxStores is what the names of namespaces have room for.
const maxStores = 1000

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// options of a run, from its flags.
type options struct {
	objects     int
	storeCounts []int
	interval    time.Duration
	unrelated   int
	scenarios   []string
	targets     bool
	output      string
	json        string
	logFile     string

	log      io.Writer
	progress io.Writer
	// binaries are built once for all scenarios.
	binaries string
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)

	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)

		return 2
	}

	if o.logFile != "" {
		file, err := os.Create(o.logFile)
		if err != nil {
			fmt.Fprintf(stderr, "bench: cannot write --log: %v\n", err)

			return 2
		}
		defer file.Close()

		o.log = file
	}

	// Without a logger controller-runtime prints a warning.
	log.SetLogger(logr.Discard())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	found, err := o.measure(ctx, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)

		return 1
	}

	if err := o.write(found); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)

		return 1
	}

	if !found.Complete() || o.targets && !found.Passed() {
		return 1
	}

	return 0
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{log: io.Discard, progress: stderr, storeCounts: []int{1, 100}}

	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.objects, "objects", 2000, "number of ExternalSecrets; the scenarios large and first-among-refreshes take five times as many")
	flags.Func("stores", "comma-separated numbers of stores that the scenario sync is repeated with; the others take the first (default 1,100)", o.setStores)
	flags.DurationVar(&o.interval, "refresh", 30*time.Second, "refreshInterval where a scenario is about refreshes")
	flags.IntVar(&o.unrelated, "unrelated", 5000, "number of unrelated Secrets of 100 KB in the scenario memory")
	flags.Func("scenario", "scenario to run; repeat for more, all for every one (default those that are not long)", o.addScenario)
	noTargets := flags.Bool("no-targets", false, "measure only: no verdicts, and exit status 0 whatever the figures")
	flags.StringVar(&o.output, "output", "", "file for the report in Markdown")
	flags.StringVar(&o.json, "json", "", "file for the report in JSON")
	flags.StringVar(&o.logFile, "log", "", "file for the output of all processes; empty discards it")

	flags.Usage = func() {
		fmt.Fprintf(stderr, "bench measures how fast the product syncs and what it costs.\n\nScenarios:\n")

		for _, s := range scenarios() {
			fmt.Fprintf(stderr, "  %-22s%s\n", s.name, s.about)
		}

		fmt.Fprintf(stderr, "\nFlags:\n")
		flags.PrintDefaults()
	}

	if err := flags.Parse(args); err != nil {
		return nil, err
	}

	o.targets = !*noTargets

	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.objects < 1:
		return nil, fmt.Errorf("--objects: %d is less than 1", o.objects)
	case o.interval < time.Second:
		return nil, fmt.Errorf("--refresh: %s is less than 1s", o.interval)
	case o.unrelated < 1:
		return nil, fmt.Errorf("--unrelated: %d is less than 1", o.unrelated)
	}

	if len(o.scenarios) == 0 {
		for _, s := range scenarios() {
			if !s.long {
				o.scenarios = append(o.scenarios, s.name)
			}
		}
	}

	return o, nil
}

func (o *options) setStores(list string) error {
	o.storeCounts = nil

	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > maxStores {
			return fmt.Errorf("%q is not a number from 1 to %d", text, maxStores)
		}

		o.storeCounts = append(o.storeCounts, n)
	}

	return nil
}

func (o *options) addScenario(name string) error {
	var known []string

	for _, s := range scenarios() {
		known = append(known, s.name)

		if name == s.name || name == "all" {
			o.scenarios = append(o.scenarios, s.name)
		}
	}

	if name != "all" && !slices.Contains(known, name) {
		return fmt.Errorf("there is no such scenario; there are %s", strings.Join(known, ", "))
	}

	return nil
}

// measure runs the scenarios, each on an installation of its own, so that their
// order does not matter, and writes each one's result when it ends. It ends
// early only when it is interrupted.
func (o *options) measure(ctx context.Context, results io.Writer) (*report.Report, error) {
	machine, err := measure.ReadMachine()
	if err != nil {
		return nil, err
	}

	dir, err := os.MkdirTemp("", "external-secrets-bench-")
	if err != nil {
		return nil, fmt.Errorf("cannot create a folder for the programs: %w", err)
	}
	defer os.RemoveAll(dir)

	if o.binaries, err = installation.Build(ctx, dir, []string{providerFake, providerVault}, o.progress); err != nil {
		return nil, err
	}

	found := &report.Report{Machine: machine, Began: time.Now()}
	fmt.Fprint(results, found.Heading())

	for _, s := range scenarios() {
		if !slices.Contains(o.scenarios, s.name) {
			continue
		}

		stores := o.storeCounts[:1]
		if s.perStores {
			stores = o.storeCounts
		}

		for _, n := range stores {
			if ctx.Err() != nil {
				continue // Interrupted: the rest is left out.
			}

			result := &report.Scenario{Name: s.name, Figures: []report.Figure{}}
			found.Scenarios = append(found.Scenarios, result)

			if err := o.scenario(ctx, s, n, result); err != nil {
				result.Error = err.Error()
			}

			fmt.Fprint(results, "\n", result.Markdown(o.targets))
		}
	}

	return found, nil
}

func (o *options) scenario(ctx context.Context, s scenario, stores int, result *report.Scenario) (err error) {
	fmt.Fprintf(o.progress, "=== %s\n", s.name)

	b := &bench{options: o, stores: stores, providerName: s.provider, result: result}

	defer func() { err = errors.Join(err, b.stop()) }()

	if err := b.start(ctx); err != nil {
		return err
	}

	return s.run(b, ctx)
}

func (o *options) write(found *report.Report) error {
	if o.output != "" {
		if err := os.WriteFile(o.output, []byte(found.Markdown(o.targets)), 0o644); err != nil {
			return fmt.Errorf("cannot write --output: %w", err)
		}
	}

	if o.json == "" {
		return nil
	}

	file, err := os.Create(o.json)
	if err != nil {
		return fmt.Errorf("cannot write --json: %w", err)
	}

	if err := errors.Join(found.WriteJSON(file), file.Close()); err != nil {
		return fmt.Errorf("cannot write --json: %w", err)
	}

	return nil
}
