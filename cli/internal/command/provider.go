package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/external-secrets/eso/cli/internal/scaffold"
)

// providerCommand is about writing providers.
func providerCommand(env Environment) *cobra.Command {
	command := &cobra.Command{
		Use:   "provider",
		Short: "Create a provider",
		Args:  positional(0, ""),
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(providerInitCommand(env))

	return command
}

func providerInitCommand(env Environment) *cobra.Command {
	var options scaffold.Options

	command := &cobra.Command{
		Use:   "init NAME",
		Short: "Create the module of a new provider, which builds and conforms",
		Long: `init creates providers/community/NAME in a clone of the repository: a module with
a config type, a store for a fictitious HTTP API, the command, a chart, and a test
that runs the conformance kit. Replace the calls of the
fictitious API by those of your backend. To undo, remove the directory: no other
file refers to it.

It runs "go mod tidy" in the new directory, which may fetch modules.`,
		Args: positional(1, "the name of the provider"),
		RunE: func(command *cobra.Command, args []string) error {
			options.Name = args[0]

			if options.Root == "" {
				root, err := clone()
				if err != nil {
					return err
				}

				options.Root = root
			}

			return initialise(command.Context(), env, options)
		},
	}

	flags := command.Flags()
	flags.StringVar(&options.Kind, "kind", "", "kind of the config; default the name in upper camel case")
	flags.StringVar(&options.Root, "root", "", "clone of the repository; default the one that the working directory is in")
	flags.StringVar(&options.Dir, "dir", "", "directory to create; default providers/community/NAME of the clone")

	return command
}

func initialise(ctx context.Context, env Environment, options scaffold.Options) error {
	dir, err := scaffold.Create(ctx, options)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(env.Out, `Made %[1]s. Next:

    cd %[1]s
    GOWORK=off go test ./...

Its README.md says the rest.
`, dir)

	return err
}

// clone is the folder above the working directory that is a clone of the
// repository.
func clone() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the repository: %w", err)
	}

	for {
		_, err := os.Stat(filepath.Join(dir, "sdk", "provider", "store.go"))
		if err == nil {
			return dir, nil
		}

		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("cannot find the repository: %w", err)
		}

		above := filepath.Dir(dir)
		if above == dir {
			return "", errors.New("this is no clone of the repository of External Secrets; change to one, or name it with --root")
		}

		dir = above
	}
}
