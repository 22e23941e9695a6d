// Command external-secrets is the operator: it keeps Secrets in sync with what
// providers read from their backends, and knows no backend itself.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/external-secrets/eso/core/internal/operator"
	"github.com/external-secrets/eso/core/internal/version"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	var (
		options     operator.Options
		showVersion bool
	)

	flags := flag.NewFlagSet("external-secrets", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&showVersion, "version", false, "print the version and exit")
	options.Register(flags)
	ctrl.RegisterFlags(flags) // --kubeconfig

	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}

	if showVersion {
		fmt.Fprintln(stdout, "external-secrets", version.String())

		return 0
	}

	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "external-secrets: unexpected argument %q\n", flags.Arg(0))

		return 2
	}

	if err := options.Validate(); err != nil {
		fmt.Fprintf(stderr, "external-secrets: %v\n", err)

		return 2
	}

	log := zap.New(zap.Level(options.LogLevel), zap.WriteTo(stderr))
	ctrl.SetLogger(log)
	klog.SetLogger(log)

	config, err := ctrl.GetConfig()
	if err != nil {
		log.Error(err, "cannot find the Kubernetes API server: set --kubeconfig or KUBECONFIG, or run in a Pod")

		return 1
	}

	log.Info("starting", "version", version.Version, "commit", version.Commit, "class", options.Class)

	if err := operator.Run(ctrl.SetupSignalHandler(), config, options); err != nil {
		log.Error(err, "stopped")

		return 1
	}

	return 0
}
