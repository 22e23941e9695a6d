// Command demo runs the product on this machine: a control plane, a Vault in
// memory, the operator and two providers, each a process of its own on
// loopback. It applies sample manifests, shows the Secrets that come of them,
// changes a value in Vault and shows the Secret follow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)

	once := flags.Bool("once", false, "end when everything has synced; exit status 0 only then")
	logFile := flags.String("log", "", "file for the output of all processes; empty discards it")

	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}

	log := io.Discard

	if *logFile != "" {
		file, err := os.Create(*logFile)
		if err != nil {
			fmt.Fprintf(stderr, "demo: cannot write --log: %v\n", err)

			return 2
		}
		defer file.Close()

		log = file
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	began := time.Now()
	d := &demo{out: stdout, log: log, once: *once}

	err := d.run(ctx)
	if stopErr := d.stop(); stopErr != nil {
		fmt.Fprintf(stderr, "demo: cannot clean up: %v\n", stopErr)

		return 1
	}

	switch {
	case err == nil && *once:
		fmt.Fprintf(stdout, "\neverything synced; the demo took %s\n", time.Since(began).Round(time.Second))

		return 0
	case err == nil, ctx.Err() != nil && !*once:
		fmt.Fprintln(stdout, "\nstopped; nothing is left running")

		return 0
	default:
		fmt.Fprintf(stderr, "demo: %v\n", err)

		return 1
	}
}
