package functional

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/repository"
	"github.com/external-secrets/eso/testkit/suite"
)

// The output of esoctl matches what the operator does.
func TestEsoctl(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	dir := t.TempDir()

	if err := installation.BuildPackages(t.Context(), dir, map[string]string{"esoctl": "./cli/cmd/esoctl"}, io.Discard); err != nil {
		t.Fatal(err)
	}

	c := &esoctl{path: filepath.Join(dir, "esoctl"), kubeconfig: esoctlAccount(t, ns), namespace: ns}

	product.Apply(t, ns, suite.FakeStore)
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	t.Run("what it renders is what the operator makes", c.renders)
	t.Run("it renders the samples of the documentation", c.rendersSamples)
	t.Run("explains one that is in sync", c.explainsHealthy)
	t.Run("explains stores that are missing, not Ready, or not for it", c.explainsStores)
	t.Run("explains a provider that is down", c.explainsProvider)
	t.Run("names the ExternalSecrets that exist", func(t *testing.T) {
		code, out := c.run(t, "explain", "nothing", "-n", ns)
		mentions(t, out, "does not exist in namespace", "there are ")

		if code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
}

// esoctl runs the command with the rights that it says it needs.
type esoctl struct{ path, kubeconfig, namespace string }

// esoctlAccount makes an account that may read what explain reads, and no more:
// above all no Secret, and nothing of a provider config that a get of its
// metadata does not need.
func esoctlAccount(t *testing.T, ns string) (kubeconfig string) {
	t.Helper()

	name := "esoctl-" + ns
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "esoctl"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{esv1.Group}, Resources: []string{"externalsecrets"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{v2alpha1.GroupVersion.Group}, Resources: []string{"secretstores", "clustersecretstores", "secretproviders"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"provider.secretstore.external-secrets.io"}, Resources: []string{"fakes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "esoctl"}},
	}

	if err := errors.Join(product.Client.Create(t.Context(), account), product.Client.Create(t.Context(), role), product.Client.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = product.Client.Delete(context.Background(), binding)
		_ = product.Client.Delete(context.Background(), role)
	})

	kubeconfig, err := product.ControlPlane.KubeconfigFor(t.Context(), types.NamespacedName{Namespace: ns, Name: "esoctl"})
	if err != nil {
		t.Fatal(err)
	}

	return kubeconfig
}

// run gives the exit code and all output.
func (c *esoctl) run(t *testing.T, args ...string) (code int, output string) {
	t.Helper()

	if args[0] == "explain" && !strings.HasSuffix(args[1], ".yaml") {
		args = append(args, "--kubeconfig", c.kubeconfig)
	}

	var out bytes.Buffer

	command := exec.CommandContext(t.Context(), c.path, args...)
	command.Stdout, command.Stderr = &out, &out

	err := command.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		code = exited.ExitCode()
	}

	return code, out.String()
}

// explains waits until an explanation holds every text.
func (c *esoctl) explains(t *testing.T, name string, texts ...string) {
	t.Helper()

	var output string

	suite.Eventually(t, func(context.Context) error {
		code, out := c.run(t, "explain", name, "-n", c.namespace)
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, out)
		}

		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("the explanation lacks %q:\n%s", text, out)
			}
		}

		output = out

		return nil
	})

	t.Logf("%s:\n%s", name, output)
}

func mentions(t *testing.T, output string, texts ...string) {
	t.Helper()

	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("the output lacks %q:\n%s", text, output)
		}
	}
}

// sameValues are those of suite.FakeStore, for esoctl.
const sameValues = `
store:
  db:
  - {version: "1", value: '{"user":"old","password":"old"}'}
  - {version: "2", value: '{"user":"app","password":"s3cret","port":5432,"tls":{"enabled":true}}'}
  odd: '{"a/b":"slash","plain":"cGxhaW4="}'
  encoded: aGVsbG8=
  binary: [{binary: AAECA/8=, metadata: {team: a}}]
`

func (c *esoctl) renders(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	values := file("values.yaml", sameValues)
	templates := `
apiVersion: v1
kind: ConfigMap
metadata: {name: templates}
data:
  app.conf: "user={{ .user }}\n"
`
	product.Apply(t, c.namespace, templates)

	for _, test := range []struct{ name, why, spec string }{
		{"plain", "every shape of read, and bytes", `
  dataFrom:
  - extract: {key: db}
  - extract: {key: odd, conversionStrategy: Unicode, decodingStrategy: Auto}
  data:
  - {secretKey: password, remoteRef: {key: db, property: password, version: "1"}}
  - {secretKey: nested, remoteRef: {key: db, property: tls.enabled}}
  - {secretKey: decoded, remoteRef: {key: encoded, decodingStrategy: Base64}}
  - {secretKey: binary, remoteRef: {key: binary}}
  - {secretKey: metadata, remoteRef: {key: binary, metadataPolicy: Fetch, property: team}}
`},
		{"found", "searches, and keys that are rewritten", `
  dataFrom:
  - find: {name: {regexp: "^(db|odd)$"}}
    rewrite: [{regexp: {source: "^", target: "x_"}}, {transform: {template: "{{ .value | upper }}"}}]
  - find: {tags: {team: a}}
`},
		{"templated", "templates of data and metadata, from a ConfigMap, and a type", `
  target:
    immutable: true
    template:
      type: example.com/custom
      mergePolicy: Merge
      metadata: {labels: {user: "{{ .user }}"}, annotations: {port: "{{ .port }}"}}
      data: {url: "postgres://{{ .user }}:{{ .password }}@db"}
      templateFrom: [{configMap: {name: templates, items: [{key: app.conf}]}}]
  dataFrom: [{extract: {key: db}}]
`},
		{"partly", "what is absent is left out", `
  target: {deletionPolicy: Merge}
  data:
  - {secretKey: here, remoteRef: {key: encoded}}
  - {secretKey: gone, remoteRef: {key: nothing}}
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			manifest := suite.ES(test.name, strings.TrimPrefix(test.spec, "\n"))
			product.Apply(t, c.namespace, manifest)
			product.Synced(t, c.namespace, test.name)

			made, err := product.Secret(t.Context(), c.namespace, test.name)
			if err != nil {
				t.Fatal(err)
			}

			command := exec.CommandContext(t.Context(), c.path, "render", "-f", file(test.name+".yaml", manifest),
				"--values", values, "--configmap", file("templates.yaml", templates))

			text, err := command.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}

			rendered := &corev1.Secret{}
			if err := yaml.UnmarshalStrict(text, rendered); err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(visible(made), visible(rendered)); diff != "" {
				t.Errorf("%s (-made +rendered):\n%s", test.why, diff)
			}
		})
	}
}

func (c *esoctl) rendersSamples(t *testing.T) {
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}

	samples, err := filepath.Glob(filepath.Join(root, "docs", "samples", "*.yaml"))
	if err != nil || len(samples) == 0 {
		t.Fatalf("no samples: %v", err)
	}

	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(`{fake: {greeting: hello, database: {user: app}}, vault: {team-a/app: {password: x}}}`), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, sample := range samples {
		text, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}

		// Others are samples of other kinds.
		if !strings.Contains(string(text), "\nkind: ExternalSecret\n") {
			continue
		}

		if code, out := c.run(t, "render", "-f", sample, "--values", values); code != 0 || !strings.Contains(out, "stringData:") {
			t.Errorf("%s: exit code %d: %s", sample, code, out)
		}

		if code, out := c.run(t, "explain", sample); code != 0 || !strings.Contains(out, "in one batch") {
			t.Errorf("%s: exit code %d: %s", sample, code, out)
		}
	}
}

// visible is what the operator and esoctl both say of a Secret.
func visible(secret *corev1.Secret) map[string]any {
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}

	maps.Copy(data, secret.StringData)

	// The operator's own marks.
	own := func(key, _ string) bool { return strings.HasPrefix(key, "reconcile.external-secrets.io/") }
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, secret.Labels)
	maps.Copy(annotations, secret.Annotations)
	maps.DeleteFunc(labels, own)
	maps.DeleteFunc(annotations, own)

	return map[string]any{
		"name": secret.Name, "type": secret.Type, "data": data, "labels": labels, "annotations": annotations,
		"immutable": secret.Immutable != nil && *secret.Immutable,
	}
}

func (c *esoctl) explainsHealthy(t *testing.T) {
	product.Apply(t, c.namespace, suite.SimpleES("app", "store"))
	product.Synced(t, c.namespace, "app")
	c.explains(t, "app",
		"Ready           True (SecretSynced)", "Last refresh    2", " ago", "Next refresh    2", ", in ",
		"Store           SecretStore store", "Ready True (Valid)", `config Fake "backend", served by SecretProvider "fake", Ready True (Serving)`,
		`key "db" property "password" -> spec.data[0] (password)`)

	code, out := c.run(t, "explain", "app", "-n", c.namespace, "-o", "json")

	var told struct {
		Status struct {
			Ready struct {
				Status string `json:"status"`
			} `json:"ready"`
			NextRefresh struct {
				Time time.Time `json:"time"`
			} `json:"nextRefresh"`
		} `json:"status"`
		Stores []struct {
			State struct {
				Obstacles []any `json:"obstacles"`
			} `json:"state"`
		} `json:"stores"`
	}

	if err := json.Unmarshal([]byte(out), &told); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}

	// The interval is an hour, and jitter takes off a tenth at most.
	away := time.Until(told.Status.NextRefresh.Time)
	if told.Status.Ready.Status != "True" || away > time.Hour || away < 53*time.Minute || len(told.Stores) != 1 || len(told.Stores[0].State.Obstacles) > 0 {
		t.Errorf("next refresh in %s: %s", away, out)
	}
}

func (c *esoctl) explainsStores(t *testing.T) {
	ns := c.namespace

	t.Run("a store that is not there, with the names of similar ones", func(t *testing.T) {
		product.Apply(t, ns, suite.SimpleES("missing", "stor"))
		product.Failing(t, ns, "missing", "does not exist")
		c.explains(t, "missing", "Ready           False (SecretSyncedError)", "Last refresh    never", "due now: never synced",
			`Why             1. SecretStore "stor" in namespace "`+ns+`" does not exist; did you mean `, `SecretStore "store"`)
	})

	t.Run("a store whose config is refused", func(t *testing.T) {
		product.Apply(t, ns, strings.NewReplacer("name: store", "name: refused", "name: backend", "name: refusing", "  data:\n", "  error: {code: PermissionDenied, message: no such right}\n  data:\n").Replace(suite.FakeStore)+
			suite.SimpleES("refused", "refused"))
		product.Failing(t, ns, "refused", "is not Ready")
		c.explains(t, "refused", `Why             1. SecretStore "refused" in namespace`, "no such right", `config Fake "refusing", served by SecretProvider "fake", Ready True`)
	})

	t.Run("a store whose config is not there", func(t *testing.T) {
		_, store, _ := strings.Cut(strings.NewReplacer("name: store", "name: configless", "name: backend", "name: nowhere").Replace(suite.FakeStore), "---\n")
		product.Apply(t, ns, store+suite.SimpleES("configless", "configless"))
		product.Failing(t, ns, "configless", "is not Ready")
		c.explains(t, "configless", `Why             1. SecretStore "configless" in namespace`, `Fake "nowhere"`, "does not exist in namespace")
	})

	t.Run("a store of another operator", func(t *testing.T) {
		product.Apply(t, ns, strings.NewReplacer("name: store", "name: theirs", "  providerConfig:", "  controller: other\n  providerConfig:").Replace(suite.FakeStore)+suite.SimpleES("theirs", "theirs"))
		c.explains(t, "theirs", "Ready           Unknown (OtherController)", "Next refresh    that of another operator", `spec.controller is "other", and this operator's class is "default"`)
	})

	t.Run("a cluster-wide store that does not admit the namespace", func(t *testing.T) {
		name := "closed-" + ns
		product.Apply(t, ns, `
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: ClusterSecretStore
metadata:
  name: `+name+`
spec:
  conditions: [{namespaces: [elsewhere]}]
  providerConfig: {providerRef: {kind: Fake, name: backend, namespace: `+ns+`}}
`+strings.Replace(suite.SimpleES("closed", name), "    name: "+name, "    kind: ClusterSecretStore\n    name: "+name, 1))
		t.Cleanup(func() { _ = product.Client.Delete(context.Background(), suite.ClusterSecretStore(name)) })
		product.Failing(t, ns, "closed", "do not admit")
		c.explains(t, "closed", `Why             1. the conditions of ClusterSecretStore "`+name+`"`, `do not admit namespace "`+ns+`"`)
	})

	t.Run("a store of v1", func(t *testing.T) {
		product.Apply(t, ns, strings.Replace(suite.SimpleES("v1", "store"), "    apiVersion: secretstore.external-secrets.io/v2alpha1\n", "", 1))
		product.Failing(t, ns, "v1", "spec.secretStoreRef.apiVersion")
		c.explains(t, "v1", "Unserved: spec.secretStoreRef.apiVersion", "set it to secretstore.external-secrets.io/v2alpha1")
	})
}

func (c *esoctl) explainsProvider(t *testing.T) {
	t.Parallel()

	// Other tests use the one that all share.
	away := &esoctl{path: c.path, kubeconfig: c.kubeconfig, namespace: product.Namespace(t)}
	p := product.Instance(t, away.namespace, installation.Instance{})

	product.Apply(t, away.namespace, suite.StoreAt("store", p.Address, ""))
	product.StoreCondition(t, suite.SecretStore(away.namespace, "store"), v2alpha1.ReasonValid)

	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}

	// The operator checks an idle provider every 30 seconds.
	product.StoreCondition(t, suite.SecretProvider(p.Name), v2alpha1.ReasonUnreachable)
	product.Apply(t, away.namespace, suite.SimpleES("late", "store"))
	product.Failing(t, away.namespace, "late")
	away.explains(t, "late", "Ready           False", `Why             1. SecretStore "store" in namespace`, "ProviderUnavailable", `2. SecretProvider "`+p.Name+`": Unreachable: `, "due now: never synced; the last try failed")
}
