package operator

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/external-secrets/eso/core/internal/version"
)

// Exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Main is the main function of a command: it parses args, which do not include
// the command's name, runs the operator until the process is signalled, and
// returns the exit code. name is that of the command, for messages.
func Main(name string, args []string, stdout, stderr io.Writer, extensions ...Extension) int {
	var (
		options     Options
		showVersion bool
	)

	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&showVersion, "version", false, "print the version and exit")
	options.Register(flags)
	ctrl.RegisterFlags(flags) // --kubeconfig

	for _, extension := range extensions {
		if extension.Flags != nil {
			extension.Flags(flags)
		}
	}

	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitUsage
	}

	if showVersion {
		fmt.Fprintln(stdout, name, version.String())

		return exitOK
	}

	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", name, flags.Arg(0))

		return exitUsage
	}

	if err := options.Validate(); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)

		return exitUsage
	}

	log := zap.New(zap.Level(options.LogLevel), zap.WriteTo(stderr))
	ctrl.SetLogger(log)
	klog.SetLogger(log)

	config, err := ctrl.GetConfig()
	if err != nil {
		log.Error(err, "cannot find the Kubernetes API server: set --kubeconfig or KUBECONFIG, or run in a Pod")

		return exitFailed
	}

	log.Info("starting", "version", version.Version, "commit", version.Commit, "class", options.Class)

	if err := Run(ctrl.SetupSignalHandler(), config, options, extensions...); err != nil {
		log.Error(err, "stopped")

		return exitFailed
	}

	return exitOK
}
