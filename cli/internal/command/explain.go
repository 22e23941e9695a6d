package command

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/core/offline"

	"github.com/external-secrets/eso/cli/internal/explanation"
	"github.com/external-secrets/eso/cli/internal/manifest"
)

const explainHelp = `Explains what the operator does with an ExternalSecret: which stores it reads
for what, what it makes, when it reads again, and what is wrong with it.

A FILE is explained without a cluster. It is what ends with .yaml, .yml or
.json, holds a path separator, or is - for the standard input.

Anything else is the NAME of an ExternalSecret in the cluster. What is added
then: when it was refreshed last and will be next, whether it is Ready, and the
chain of what is in the way: the store, its conditions and its gate, the
provider config, the provider's registration.

Of the cluster it reads the ExternalSecret, stores, SecretProviders, the
metadata of provider configs, and, where a store has conditions, that of the
namespace. It never reads a Secret.`

type explainFlags struct {
	namespace, kubeconfig, context string
	class                          string
	output                         string
}

func explainCommand(env Environment) *cobra.Command {
	var flags explainFlags

	command := &cobra.Command{
		Use:   "explain FILE|NAME",
		Short: "Explain what an ExternalSecret does, and why it is not in sync",
		Long:  explainHelp + "\n" + exitCodes,
		Example: `  esoctl explain app.yaml
  esoctl explain app -n team-a
  esoctl explain app --context production -o json`,
		Args: positional(1, "a file, or the name of an ExternalSecret,"),
		RunE: func(command *cobra.Command, args []string) error {
			if err := oneOf("output", flags.output, formatText, formatJSON); err != nil {
				return err
			}

			var (
				all []*explanation.Explanation
				err error
			)

			if isFile(args[0]) {
				if flags.kubeconfig != "" || flags.context != "" {
					return usage("explain: %s is a file, for which no cluster is asked: leave out --kubeconfig and --context", args[0])
				}

				all, err = explainFile(env, args[0], flags.namespace)
			} else {
				all, err = explainName(command.Context(), env, args[0], flags)
			}

			if err != nil {
				return err
			}

			return write(env, flags.output, all)
		},
	}

	set := command.Flags()
	set.StringVarP(&flags.namespace, "namespace", "n", "", "namespace of the ExternalSecret; by default that of the context")
	set.StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig file; by default KUBECONFIG, then ~/.kube/config, then that of the Pod")
	set.StringVar(&flags.context, "context", "", "context of the kubeconfig")
	set.StringVar(&flags.class, "controller-class", "default", "class of the operator, as its flag has it")
	set.StringVarP(&flags.output, "output", "o", formatText, "text or json")

	return command
}

// isFile distinguishes a file from the name of an object, whatever the working folder
// holds.
func isFile(argument string) bool {
	switch filepath.Ext(argument) {
	case ".yaml", ".yml", ".json":
		return true
	default:
		return argument == manifest.Stdin || strings.ContainsAny(argument, "/"+string(filepath.Separator))
	}
}

func explainFile(env Environment, file, namespace string) ([]*explanation.Explanation, error) {
	read, err := manifest.Read(file, env.In)
	if err != nil {
		return nil, err
	}

	if len(read.ExternalSecrets) == 0 {
		return nil, fmt.Errorf("cannot explain %s: there is no ExternalSecret in it", manifest.Name(file))
	}

	all := make([]*explanation.Explanation, 0, len(read.ExternalSecrets))

	for _, es := range read.ExternalSecrets {
		if es.Namespace == "" {
			es.Namespace = namespace
		}

		one := explanation.Of(es, env.Now())
		one.File = manifest.Name(file)
		all = append(all, one)
	}

	return all, nil
}

func explainName(ctx context.Context, env Environment, name string, flags explainFlags) ([]*explanation.Explanation, error) {
	cluster, namespace, err := connect(flags)
	if err != nil {
		return nil, err
	}

	es := &esv1.ExternalSecret{}
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, es); err != nil {
		return nil, unread(ctx, cluster, namespace, name, err)
	}

	now := env.Now()
	one := explanation.Of(es, now)
	one.InCluster(es, offline.Examine(ctx, cluster, es, flags.class), now)

	return []*explanation.Explanation{one}, nil
}

// unread says why an ExternalSecret cannot be read, and which ones there are.
func unread(ctx context.Context, cluster client.Reader, namespace, name string, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot read ExternalSecret %q in namespace %q: %w", name, namespace, err)
	}

	var (
		list  esv1.ExternalSecretList
		names []string
	)

	const shown = 5

	// Without permission to list them there is no proposal.
	_ = cluster.List(ctx, &list, client.InNamespace(namespace), client.Limit(shown))

	for _, es := range list.Items {
		names = append(names, es.Name)
	}

	there := "there is none"
	if len(names) > 0 {
		there = "there are " + strings.Join(names, ", ")
	}

	if list.Continue != "" {
		there += " and others"
	}

	return fmt.Errorf("cannot explain ExternalSecret %q: it does not exist in namespace %q, where %s; --namespace names another, and a file's name ends with .yaml", name, namespace, there)
}

// connect reaches the cluster as kubectl does.
func connect(flags explainFlags) (cluster client.Client, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = flags.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: flags.context})

	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("cannot reach a cluster; set --kubeconfig and --context: %w", err)
	}

	if namespace = flags.namespace; namespace == "" {
		if namespace, _, err = loader.Namespace(); err != nil {
			return nil, "", fmt.Errorf("cannot determine the namespace; set --namespace: %w", err)
		}
	}

	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{esv1.AddToScheme, v2alpha1.AddToScheme} {
		if err := add(known); err != nil {
			return nil, "", fmt.Errorf("cannot build the scheme: %w", err)
		}
	}

	config.UserAgent = "esoctl"

	if cluster, err = client.New(config, client.Options{Scheme: known}); err != nil {
		return nil, "", fmt.Errorf("cannot create a client of %s: %w", config.Host, err)
	}

	return cluster, namespace, nil
}

func write(env Environment, format string, all []*explanation.Explanation) error {
	var text string

	if format == formatJSON {
		var value any = all
		if len(all) == 1 {
			value = all[0]
		}

		encoded, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return fmt.Errorf("cannot write the explanation as JSON: %w", err)
		}

		text = string(encoded) + "\n"
	} else {
		parts := make([]string, 0, len(all))
		for _, one := range all {
			parts = append(parts, one.Text())
		}

		text = strings.Join(parts, "\n")
	}

	if _, err := fmt.Fprint(env.Out, text); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}

	return nil
}
