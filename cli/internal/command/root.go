package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Environment is what the command line meets.
type Environment struct {
	// Args besides the program's name.
	Args []string
	// In, Out and Err are the standard streams.
	In       io.Reader
	Out, Err io.Writer
	// Now is the clock.
	Now func() time.Time
	// Version and Commit of the build.
	Version, Commit string
}

// usageError means that the command line is invalid.
type usageError struct{ error }

// Unwrap gives what is wrong.
func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// reportedError says that something failed, and that it has been reported.
type reportedError struct{}

func (reportedError) Error() string { return "it failed" }

const about = `esoctl shows what the operator makes of an ExternalSecret, with the operator's
own code: its target out of given values, without a cluster, and why it is, or
is not, in sync. It also begins the source code of a provider.

It writes nothing to a cluster, and reads no Secret of one.`

const exitCodes = `
Exit codes: 0 done; 1 it failed, see the message; 2 the command line makes no
sense.`

// Main runs esoctl and gives its exit code.
func Main(ctx context.Context, env Environment) int {
	root := &cobra.Command{
		Use:           "esoctl",
		Short:         "Render and explain ExternalSecrets as the operator does",
		Long:          about + "\n" + exitCodes,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("there is no command %q; %s has render, explain, provider and version", args[0], command.Name())
			}

			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}

	// Without any, cobra takes those of the process.
	root.SetArgs(append([]string{}, env.Args...))
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(renderCommand(env), explainCommand(env), providerCommand(env), versionCommand(env))

	err := root.ExecuteContext(ctx)

	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &reportedError{}):
		return exitFailed
	case errors.As(err, &usageError{}):
		fmt.Fprintf(env.Err, "esoctl: %v\nSee 'esoctl --help', or 'esoctl <command> --help'.\n", err)

		return exitUsage
	default:
		fmt.Fprintf(env.Err, "esoctl: %v\n", err)

		return exitFailed
	}
}

func versionCommand(env Environment) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of esoctl",
		Args:  positional(0, ""),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(env.Out, "%s (%s)\n", env.Version, env.Commit)

			return err
		},
	}
}

// positional requires a number of arguments.
func positional(n int, what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		switch {
		case len(args) > n:
			return usage("%s: %q is one argument too many", command.Name(), args[n])
		case len(args) < n:
			return usage("%s: %s is missing", command.Name(), what)
		default:
			return nil
		}
	}
}

// oneOf refuses a flag's value that is none of those.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}

	return usage("--%s is %q: it is one of %q", flag, value, allowed)
}
