package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/core/offline"

	"github.com/external-secrets/eso/cli/internal/manifest"
	"github.com/external-secrets/eso/cli/internal/object"
	"github.com/external-secrets/eso/cli/internal/values"
)

const (
	formatYAML = "yaml"
	formatJSON = "json"
	formatText = "text"
)

const renderHelp = `Renders the target of each ExternalSecret of a file out of values that another
file holds, with the code that the operator uses: plan, deletion policies,
decoding, rewriting, templates. No cluster is needed, and none is asked.

The objects go to the standard output; what else there is to say, such as keys
that are left out, to the standard error. The labels, annotations and the owner
reference by which the operator knows its own are not shown.

The values are those of the file that you give, and are shown. --hide-values
hides them.

The file of values maps stores to keys to values:

    SecretStore/team-vault:        # or team-vault, for either kind of store
      api-token: a text
      database:                    # a JSON object
        user: app
        port: 5432
      keystore: {binary: AAECAw==} # bytes, in base64
      rotated:                     # versions, the latest last
      - {version: "1", value: old}
      - {version: "2", value: new, metadata: {team: a}}
    ClusterSecretStore/shared: {}  # a store that holds nothing

A property is selected as the providers do it, and find takes its path for the
beginning of a key, and its tags for those of metadata. A key that is not there
is proven absent, and the deletion policy decides.`

type renderFlags struct {
	files, configMaps, secrets []string
	values                     string
	output                     string
	left, right                string
	hide                       bool
}

func renderCommand(env Environment) *cobra.Command {
	var flags renderFlags

	command := &cobra.Command{
		Use:   "render -f FILE --values FILE",
		Short: "Render the target of an ExternalSecret, without a cluster",
		Long:  renderHelp + "\n" + exitCodes,
		Example: `  esoctl render -f app.yaml --values values.yaml
  esoctl render -f app.yaml --values values.yaml --configmap templates.yaml -o json
  kubectl get es app -o yaml | esoctl render -f - --values values.yaml --hide-values`,
		Args: positional(0, ""),
		RunE: func(command *cobra.Command, _ []string) error {
			if err := flags.validate(); err != nil {
				return err
			}

			return render(command.Context(), env, flags)
		},
	}

	set := command.Flags()
	set.StringArrayVarP(&flags.files, "filename", "f", nil, "file with ExternalSecrets, and with objects that templates are read from; - for the standard input; repeat for more")
	set.StringVar(&flags.values, "values", "", "file with what the stores hold; - for the standard input")
	set.StringArrayVar(&flags.configMaps, "configmap", nil, "file with ConfigMaps that templateFrom names; repeat for more")
	set.StringArrayVar(&flags.secrets, "secret", nil, "file with Secrets that templateFrom names; repeat for more")
	set.StringVarP(&flags.output, "output", "o", formatYAML, "yaml or json")
	set.StringVar(&flags.left, "template-left-delimiter", "{{", "left delimiter of templates, as the operator's flag has it")
	set.StringVar(&flags.right, "template-right-delimiter", "}}", "right delimiter of templates, as the operator's flag has it")
	set.BoolVar(&flags.hide, "hide-values", false, "show the keys, and not the values")

	return command
}

func (f renderFlags) validate() error {
	switch {
	case len(f.files) == 0:
		return usage("render: --filename is missing: name a file with ExternalSecrets")
	case f.values == "":
		return usage("render: --values is missing: name a file with what the stores hold")
	case f.left == "" || f.right == "" || f.left == f.right:
		return usage("render: --template-left-delimiter and --template-right-delimiter: %q and %q are empty or equal", f.left, f.right)
	}

	inputs := 0

	for _, file := range append(append(append([]string{f.values}, f.files...), f.configMaps...), f.secrets...) {
		if file == manifest.Stdin {
			inputs++
		}
	}

	if inputs > 1 {
		return usage("render: the standard input can be read once only")
	}

	return oneOf("output", f.output, formatYAML, formatJSON)
}

// given is an ExternalSecret and its source.
type given struct {
	es   *esv1.ExternalSecret
	file string
}

func (g given) String() string {
	return fmt.Sprintf("ExternalSecret %q of %s", g.es.Name, manifest.Name(g.file))
}

func render(ctx context.Context, env Environment, flags renderFlags) error {
	all, objects, err := load(env, flags)
	if err != nil {
		return err
	}

	held, err := values.Read(flags.values, env.In)
	if err != nil {
		return err
	}

	var (
		made   []map[string]any
		failed bool
	)

	for _, one := range all {
		target, err := offline.Render(ctx, one.es, held, manifest.Contents(objects, one.es.Namespace),
			offline.Options{LeftDelimiter: flags.left, RightDelimiter: flags.right})
		if err != nil {
			fmt.Fprintf(env.Err, "esoctl: cannot render %s: %v\n", one, err)

			failed = true

			continue
		}

		if remark(env, one, target) {
			made = append(made, object.New(one.es, target, flags.hide))
		}
	}

	if err := show(env, flags.output, made); err != nil {
		return err
	}

	if failed {
		return reportedError{}
	}

	return nil
}

// load reads the files but that of the values.
func load(env Environment, flags renderFlags) ([]given, []manifest.Object, error) {
	var (
		all     []given
		objects []manifest.Object
	)

	for _, file := range flags.files {
		read, err := manifest.Read(file, env.In)
		if err != nil {
			return nil, nil, err
		}

		for _, es := range read.ExternalSecrets {
			all = append(all, given{es, file})
		}

		objects = append(objects, read.Objects...)
	}

	if len(all) == 0 {
		return nil, nil, fmt.Errorf("cannot render anything: there is no ExternalSecret in %s", strings.Join(flags.files, ", "))
	}

	for _, source := range []struct {
		kind  string
		files []string
	}{{offline.KindConfigMap, flags.configMaps}, {offline.KindSecret, flags.secrets}} {
		for _, file := range source.files {
			read, err := manifest.Read(file, env.In)
			if err != nil {
				return nil, nil, err
			}

			found := false

			for _, o := range read.Objects {
				if o.Kind == source.kind {
					objects, found = append(objects, o), true
				}
			}

			if !found {
				return nil, nil, fmt.Errorf("cannot take templates from %s: there is no %s in it", manifest.Name(file), source.kind)
			}
		}
	}

	return all, objects, nil
}

// remark describes what the object alone does not, and reports whether there is one.
func remark(env Environment, one given, target *offline.Target) bool {
	say := func(format string, args ...any) {
		fmt.Fprintf(env.Err, "%s: %s\n", one, fmt.Sprintf(format, args...))
	}

	if len(target.Absent) > 0 {
		say("not found, and left out: %s", strings.Join(target.Absent, ", "))
	}

	switch {
	case target.Action() == offline.Deleted:
		say("the stores have nothing for %s %q: deletionPolicy Delete deletes it", target.Noun(), target.Name)
	case target.Action() == offline.Retained:
		say("the stores have nothing for %s %q: it stays as it is, and is not made where it is missing", target.Noun(), target.Name)
	case target.Creation == esv1.CreationNone:
		say("creationPolicy None makes no target")
	case target.Creation == esv1.CreationMerge:
		say("creationPolicy Merge adds this to %s %q, which others have to make", target.Noun(), target.Name)

		return true
	default:
		return true
	}

	return false
}

func show(env Environment, format string, made []map[string]any) error {
	write := object.YAML
	if format == formatJSON {
		write = object.JSON
	}

	text, err := write(made)
	if err != nil {
		return err
	}

	if _, err := env.Out.Write(text); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}

	return nil
}
