package kit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/kit/internal/apiserver"
)

// Profile bounds what a run may do to the backend.
type Profile string

const (
	// ReadOnly changes nothing at the backend.
	ReadOnly Profile = "read-only"
	// Full also writes below the prefix that the fixtures name, and generates
	// credentials.
	Full Profile = "full"
)

// Target is a provider under test and the secrets of its backend.
type Target struct {
	// Address of the provider: host:port, or unix:///path. Absent with a
	// command, it is a free port on loopback.
	Address string `json:"address,omitempty"`
	// ServerName that the provider's certificate must be for; absent means the
	// address's host.
	ServerName string `json:"serverName,omitempty"`
	// TLS of a network address. Absent with a command, the kit makes a
	// certificate authority of its own.
	TLS *TLS `json:"tls,omitempty"`
	// Command that starts the provider. Absent means that it runs already.
	Command *Command `json:"command,omitempty"`
	// Objects are YAML files with the config and what it refers to, for a
	// provider that the kit starts: the kit then serves them in place of a
	// Kubernetes API server, and config needs no uid.
	Objects []string `json:"objects,omitempty"`
	// Profile is read-only or full; absent means read-only.
	Profile Profile `json:"profile,omitempty"`
	// Store in the context of calls. Absent means a SecretStore in the config's
	// namespace.
	Store *StoreReference `json:"store,omitempty"`
	// Config that calls use.
	Config ConfigReference `json:"config"`
	// SourceNamespace of calls; absent means the config's namespace.
	SourceNamespace string `json:"sourceNamespace,omitempty"`
	// AuthenticationNamespace of calls; absent means the config's namespace.
	AuthenticationNamespace string `json:"authenticationNamespace,omitempty"`
	// Absent are capabilities that the kind has and the store under test has not,
	// each with the reason: its backend is one that cannot. Only Watch may be
	// absent; the store then answers it with UNIMPLEMENTED.
	Absent map[string]string `json:"absent,omitempty"`
	// Fixtures are the secrets of the backend.
	Fixtures Fixtures `json:"fixtures,omitzero"`

	// objects are those of the files.
	objects []unstructured.Unstructured
}

// TLS has the certificates of the kit.
type TLS struct {
	// CAFile holds the authorities that the provider's certificate chains to.
	CAFile string `json:"caFile"`
	// CAKeyFile holds the key of a throw-away authority, the first of CAFile.
	// With it the kit issues the operator's certificate, and those of other
	// peers.
	CAKeyFile string `json:"caKeyFile,omitempty"`
	// CertFile and KeyFile are the operator's certificate, where there is no
	// CAKeyFile.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// OperatorIdentity is the URI name that the provider accepts; absent means
	// spiffe://external-secrets.io/operator.
	OperatorIdentity string `json:"operatorIdentity,omitempty"`
}

// Command starts a provider. In its arguments and environment {address} is replaced
// by the address to listen on, {tlsDir} by a directory with tls.crt, tls.key and
// ca.crt that the kit creates, and {kubeconfig} by a kubeconfig for the target's
// objects.
type Command struct {
	// Args are the program and its arguments.
	Args []string `json:"args"`
	// Env is added to the kit's own environment, as NAME=value.
	Env []string `json:"env,omitempty"`
	// StartTimeout is how long it may take to serve; absent means 30s.
	StartTimeout Duration `json:"startTimeout,omitempty"`
	// StopTimeout is how long it may take to end; absent means 30s.
	StopTimeout Duration `json:"stopTimeout,omitempty"`
}

// Duration is written as in 30s.
type Duration time.Duration

// MarshalJSON writes a duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a duration's text.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("a duration is a text such as 30s")
	}

	parsed, err := time.ParseDuration(text)
	if err != nil || parsed <= 0 {
		return fmt.Errorf("%q is no duration above zero, such as 30s", text)
	}

	*d = Duration(parsed)

	return nil
}

func (d Duration) or(otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}

	return time.Duration(d)
}

// StoreReference names a store object. It need not exist.
type StoreReference struct {
	// Kind is SecretStore or ClusterSecretStore.
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation,omitempty"`
}

// ConfigReference names a provider config, which the provider reads.
type ConfigReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation,omitempty"`
}

func (c ConfigReference) wire() *pb.ConfigReference {
	return &pb.ConfigReference{ApiVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name, Uid: c.UID, Generation: c.Generation}
}

func (c ConfigReference) check(field string) []error {
	var errs []error

	for _, part := range []struct{ name, value string }{
		{"apiVersion", c.APIVersion}, {"kind", c.Kind}, {"namespace", c.Namespace}, {"name", c.Name}, {"uid", c.UID},
	} {
		if part.value == "" {
			errs = append(errs, fmt.Errorf("%s.%s: is missing; take it from the object (kubectl get -o yaml)", field, part.name))
		}
	}

	return errs
}

// Fixtures are the secrets of the backend.
type Fixtures struct {
	// Secrets that can be read.
	Secrets []Secret `json:"secrets,omitempty"`
	// MissingKey is a key of no secret.
	MissingKey string `json:"missingKey,omitempty"`
	// Find are searches and what they find.
	Find []Search `json:"find,omitempty"`
	// Write is where secrets may be written.
	Write *Write `json:"write,omitempty"`
	// InvalidConfig is a config that exists and cannot work.
	InvalidConfig *ConfigReference `json:"invalidConfig,omitempty"`
	// Slow is a config whose backend takes its time.
	Slow *Slow `json:"slow,omitempty"`
	// Generator is how credentials are generated.
	Generator *Generation `json:"generator,omitempty"`
	// CredentialFiles hold what the provider logs in with: no error may hold
	// it.
	CredentialFiles []string `json:"credentialFiles,omitempty"`

	credentials []string
}

// Secret is one that the backend holds, and what reads of it answer. What is
// left out is not tested.
type Secret struct {
	// Key by which it is read.
	Key string `json:"key"`
	// Value as text, Binary as base64, or ValueFile with the bytes, which Load
	// reads: the whole of the latest version.
	Value     *string `json:"value,omitempty"`
	Binary    []byte  `json:"binary,omitempty"`
	ValueFile string  `json:"valueFile,omitempty"`
	// Properties of it.
	Properties map[string]string `json:"properties,omitempty"`
	// MissingProperty that it does not have.
	MissingProperty string `json:"missingProperty,omitempty"`
	// Map is what a read of shape map answers.
	Map map[string]string `json:"map,omitempty"`
	// Versions of it.
	Versions map[string]string `json:"versions,omitempty"`
	// MissingVersion that it does not have.
	MissingVersion string `json:"missingVersion,omitempty"`
	// Metadata of it, by property.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// whole returns the latest value, if the fixture has it.
func (s Secret) whole() ([]byte, bool) {
	if s.Value != nil {
		return []byte(*s.Value), true
	}

	return s.Binary, s.Binary != nil
}

// Search is a FindSecrets and the keys that it finds, all of them.
type Search struct {
	Path       *string           `json:"path,omitempty"`
	NameRegexp string            `json:"nameRegexp,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Keys       []string          `json:"keys"`
}

// Write is where secrets may be written.
type Write struct {
	// Prefix of every key that the kit writes; what lies below it is the kit's.
	Prefix string `json:"prefix"`
	// Metadata that goes with each push: the provider's own settings.
	Metadata map[string]any `json:"metadata,omitempty"`
	// Documents means that the backend stores JSON objects only, so that whole
	// secrets that are pushed are objects.
	Documents bool `json:"documents,omitempty"`
	// Unowned is the key of a secret that carries no mark. The run takes it
	// over, so that each run needs a fresh one.
	Unowned string `json:"unowned,omitempty"`
}

// Slow is a config that works, whose every call takes from two to ten seconds.
type Slow struct {
	Config ConfigReference `json:"config"`
	// Key of a secret that is read with it.
	Key string `json:"key"`
}

// Generation is how credentials are generated.
type Generation struct {
	// Config of the generator; absent means the target's.
	Config *ConfigReference `json:"config,omitempty"`
	// ConfigSnapshot is the config object, for cleanups after it is deleted.
	ConfigSnapshot map[string]any `json:"configSnapshot,omitempty"`
}

// Load reads a target from a YAML file. Paths in it are relative to its folder.
func Load(file string) (Target, error) {
	var target Target

	text, err := os.ReadFile(file)
	if err != nil {
		return target, fmt.Errorf("cannot read the target: %w", err)
	}

	text, err = yaml.YAMLToJSONStrict(text)
	if err != nil {
		return target, fmt.Errorf("cannot read %s: %w", file, err)
	}

	unknown, err := kjson.UnmarshalStrict(text, &target)
	if err != nil {
		return target, fmt.Errorf("cannot read %s: %w", file, err)
	}

	if len(unknown) > 0 {
		return target, fmt.Errorf("cannot read %s: %w; see docs/conformance.md for the fields", file, errors.Join(unknown...))
	}

	if err := target.resolve(filepath.Dir(file)); err != nil {
		return target, fmt.Errorf("cannot use %s:\n%w", file, err)
	}

	return target, nil
}

// resolve makes paths relative to a folder absolute, and reads the files of
// fixtures.
func (t *Target) resolve(dir string) error {
	var errs []error

	for i := range t.Fixtures.Secrets {
		secret := &t.Fixtures.Secrets[i]
		if secret.ValueFile == "" {
			continue
		}

		value, err := os.ReadFile(within(dir, secret.ValueFile))
		if err != nil {
			errs = append(errs, fmt.Errorf("fixtures.secrets[%d].valueFile: %w", i, err))
		}

		secret.Binary = append([]byte{}, value...)
	}

	for i, file := range t.Fixtures.CredentialFiles {
		text, err := os.ReadFile(within(dir, file))
		if err != nil {
			errs = append(errs, fmt.Errorf("fixtures.credentialFiles[%d]: %w", i, err))
		}

		t.Fixtures.credentials = append(t.Fixtures.credentials, strings.TrimSpace(string(text)))
	}

	// A name without a folder is looked for in PATH.
	if t.Command != nil && len(t.Command.Args) > 0 && strings.ContainsRune(t.Command.Args[0], filepath.Separator) {
		// Without a folder it would now be looked for in PATH.
		if t.Command.Args[0] = within(dir, t.Command.Args[0]); !strings.ContainsRune(t.Command.Args[0], filepath.Separator) {
			t.Command.Args[0] = "." + string(filepath.Separator) + t.Command.Args[0]
		}
	}

	for i := range t.Objects {
		t.Objects[i] = within(dir, t.Objects[i])
	}

	objects, err := apiserver.Load(t.Objects...)
	if err != nil {
		errs = append(errs, fmt.Errorf("objects: %w", err))
	}

	t.objects = objects
	t.identify()

	if t.TLS != nil {
		for _, path := range []*string{&t.TLS.CAFile, &t.TLS.CAKeyFile, &t.TLS.CertFile, &t.TLS.KeyFile} {
			*path = within(dir, *path)
		}
	}

	// Whether there is Options.Dial in place of an address is not known here.
	checked := slices.DeleteFunc(t.check(), func(err error) bool { return errors.Is(err, errNoAddress) })

	return errors.Join(append(errs, checked...)...)
}

// identify fills in what the kit gave to the objects.
func (t *Target) identify() {
	configs := []*ConfigReference{&t.Config, t.Fixtures.InvalidConfig}
	if t.Fixtures.Slow != nil {
		configs = append(configs, &t.Fixtures.Slow.Config)
	}

	if t.Fixtures.Generator != nil {
		configs = append(configs, t.Fixtures.Generator.Config)
	}

	for _, config := range configs {
		if config == nil {
			continue
		}

		for _, object := range t.objects {
			if object.GetKind() == config.Kind && object.GetNamespace() == config.Namespace && object.GetName() == config.Name &&
				(config.APIVersion == "" || config.APIVersion == object.GetAPIVersion()) {
				config.APIVersion, config.UID, config.Generation = object.GetAPIVersion(), string(object.GetUID()), object.GetGeneration()
			}
		}
	}
}

func within(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}

	return filepath.Join(dir, path)
}

// check returns the errors of a target, with their fixes.
func (t *Target) check() []error {
	errs := append(t.checkEndpoint(), t.Config.check("config")...)

	switch t.Profile {
	case "", ReadOnly, Full:
	default:
		errs = append(errs, fmt.Errorf("profile: %q is neither read-only nor full", t.Profile))
	}

	if store := t.Store; store != nil {
		if store.Kind != kindSecretStore && store.Kind != kindClusterSecretStore {
			errs = append(errs, fmt.Errorf("store.kind: %q is neither SecretStore nor ClusterSecretStore", store.Kind))
		}

		if store.Name == "" || store.UID == "" {
			errs = append(errs, errors.New("store: name and uid are needed; leave the store out for one that the kit makes up"))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(t.Absent)) {
		switch {
		case name != watchName:
			errs = append(errs, fmt.Errorf("absent: %q cannot be absent, only %s can: a kind has the others with every store", name, watchName))
		case strings.TrimSpace(t.Absent[name]) == "":
			errs = append(errs, fmt.Errorf("absent.%s: is empty; say why this store cannot", name))
		}
	}

	return append(errs, t.Fixtures.check()...)
}

// watchName is the capability that may be absent, as a target names it.
const watchName = "Watch"

// absent returns the reason why the store under test lacks a capability; empty
// means that it does not.
func (t *Target) absent(capability pb.Capability) string {
	if capability == pb.Capability_CAPABILITY_WATCH {
		return t.Absent[watchName]
	}

	return ""
}

var errNoAddress = errors.New("address: is missing; give host:port or unix:///path, or a command to start")

func (t *Target) checkEndpoint() []error {
	var errs []error

	socket, unix := strings.CutPrefix(t.Address, "unix://")

	switch {
	case t.Address == "" && t.Command == nil:
		errs = append(errs, errNoAddress)
	case t.Address == "":
	case unix && !strings.HasPrefix(socket, "/"):
		errs = append(errs, fmt.Errorf("address: %q: a unix socket needs an absolute path, as in unix:///run/provider.sock", t.Address))
	case unix && t.TLS != nil:
		errs = append(errs, errors.New("tls: a unix socket has none; leave it out"))
	case unix:
	default:
		if _, _, err := net.SplitHostPort(t.Address); err != nil {
			errs = append(errs, fmt.Errorf("address: %w; give host:port or unix:///path", err))
		}

		if t.TLS == nil && t.Command == nil {
			errs = append(errs, errors.New("tls: is missing; a network address is secured by mutual TLS: give caFile, and caKeyFile or certFile and keyFile"))
		}
	}

	if len(t.Objects) > 0 && t.Command == nil {
		errs = append(errs, errors.New("objects: a provider that runs already has an API server; leave them out, or give a command"))
	}

	if t.Command != nil && (len(t.Command.Args) == 0 || t.Command.Args[0] == "") {
		errs = append(errs, errors.New("command.args: is empty; give the program and its arguments"))
	}

	if t.Command != nil && t.TLS != nil && t.TLS.CAKeyFile == "" && strings.Contains(strings.Join(slices.Concat(t.Command.Args, t.Command.Env), " "), "{tlsDir}") {
		errs = append(errs, errors.New("command: {tlsDir} holds what the kit makes; give tls.caKeyFile too, or leave tls out"))
	}

	if t.TLS != nil {
		if t.TLS.CAFile == "" {
			errs = append(errs, errors.New("tls.caFile: is missing; give the authority of the provider's certificate"))
		}

		if (t.TLS.CertFile == "") != (t.TLS.KeyFile == "") {
			errs = append(errs, errors.New("tls: certFile and keyFile belong together; give both or neither"))
		}

		if own := t.TLS.CertFile != "" && t.TLS.KeyFile != ""; own == (t.TLS.CAKeyFile != "") {
			errs = append(errs, errors.New("tls: give either caKeyFile, of a throw-away authority, or certFile and keyFile, the operator's"))
		}
	}

	return errs
}

func (f *Fixtures) check() []error {
	var errs []error

	for i, secret := range f.Secrets {
		given := 0

		for _, is := range []bool{secret.Value != nil, secret.ValueFile != "", secret.Binary != nil && secret.ValueFile == ""} {
			if is {
				given++
			}
		}

		if secret.Key == "" {
			errs = append(errs, fmt.Errorf("fixtures.secrets[%d].key: is missing", i))
		}

		if given > 1 {
			errs = append(errs, fmt.Errorf("fixtures.secrets[%d]: give one of value, binary and valueFile", i))
		}
	}

	for i, search := range f.Find {
		if len(search.Keys) == 0 {
			errs = append(errs, fmt.Errorf("fixtures.find[%d].keys: is empty; list every key that the search finds", i))
		}
	}

	if f.Write != nil && f.Write.Prefix == "" {
		errs = append(errs, errors.New("fixtures.write.prefix: is missing; the kit writes below it and nowhere else"))
	}

	if f.InvalidConfig != nil {
		errs = append(errs, f.InvalidConfig.check("fixtures.invalidConfig")...)
	}

	if f.Slow != nil {
		errs = append(errs, f.Slow.Config.check("fixtures.slow.config")...)

		if f.Slow.Key == "" {
			errs = append(errs, errors.New("fixtures.slow.key: is missing; name a secret that is read with the slow config"))
		}
	}

	if f.Generator != nil && f.Generator.Config != nil {
		errs = append(errs, f.Generator.Config.check("fixtures.generator.config")...)
	}

	return errs
}

// hidden replaces a value in a report.
const hidden = "(not shown)"

// shown returns the target without values, for a report.
func (t *Target) shown() Target {
	shown := *t
	secrets := make([]Secret, 0, len(t.Fixtures.Secrets))

	for _, secret := range t.Fixtures.Secrets {
		if secret.Value != nil {
			text := hidden
			secret.Value = &text
		}

		if secret.Binary != nil {
			secret.Binary = []byte(hidden)
		}

		if secret.ValueFile != "" {
			secret.Binary = nil
		}

		secret.Properties, secret.Map = veiled(secret.Properties), veiled(secret.Map)
		secret.Versions, secret.Metadata = veiled(secret.Versions), veiled(secret.Metadata)
		secrets = append(secrets, secret)
	}

	shown.Fixtures.Secrets = secrets

	// Settings of providers may hold anything.
	if write := t.Fixtures.Write; write != nil && write.Metadata != nil {
		veiled := *write
		veiled.Metadata = map[string]any{hidden: hidden}
		shown.Fixtures.Write = &veiled
	}

	if generator := t.Fixtures.Generator; generator != nil && generator.ConfigSnapshot != nil {
		shown.Fixtures.Generator = &Generation{Config: generator.Config, ConfigSnapshot: map[string]any{hidden: hidden}}
	}

	if t.Command != nil && len(t.Command.Env) > 0 {
		command := *t.Command
		command.Env = nil

		for _, entry := range t.Command.Env {
			name, _, _ := strings.Cut(entry, "=")
			command.Env = append(command.Env, name+"="+hidden)
		}

		shown.Command = &command
	}

	return shown
}

func veiled(values map[string]string) map[string]string {
	if values == nil {
		return nil
	}

	veiled := make(map[string]string, len(values))
	for name := range values {
		veiled[name] = hidden
	}

	return veiled
}

// canaries returns the texts that no error may contain. Short values are excluded,
// because they occur in other words by chance.
func (t *Target) canaries() []string {
	var all []string

	for _, secret := range t.Fixtures.Secrets {
		if whole, ok := secret.whole(); ok {
			all = append(all, string(whole))
		}

		for _, values := range []map[string]string{secret.Properties, secret.Map, secret.Versions} {
			for _, value := range values {
				all = append(all, value)
			}
		}
	}

	return append(all, t.Fixtures.credentials...)
}
