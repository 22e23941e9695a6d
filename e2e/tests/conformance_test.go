package tests

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/release/metadata"

	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/repository"
)

// conformanceLimit is what a whole run may take.
const conformanceLimit = 2 * time.Minute

// Our own providers keep the protocol that strangers are held to: the kit
// starts the very processes that ship, and tests all that they claim.
func TestConformance(t *testing.T) {
	kit := &conformanceKit{path: buildConformance(t)}

	t.Run("fake", kit.fake)
	t.Run("vault", kit.vault)
	t.Run("kubernetes", kit.kubernetes)
	t.Run("resource", kit.resource)
}

// conformanceKit is the command, as an author of a provider runs it.
type conformanceKit struct {
	path string
	// env of the provider, as NAME=value.
	env []string
}

// conformanceReport is what of a report the test reads.
type conformanceReport struct {
	Conformant bool    `json:"conformant"`
	Seconds    float64 `json:"seconds"`
	Counts     struct {
		Passed       int `json:"passed"`
		Failed       int `json:"failed"`
		Skipped      int `json:"skipped"`
		NotExercised int `json:"notExercised"`
	} `json:"counts"`
	Claims []struct {
		Capability string `json:"capability"`
		Result     string `json:"result"`
		Message    string `json:"message"`
	} `json:"claims"`
	Tests []struct {
		ID     string `json:"id"`
		Result string `json:"result"`
	} `json:"tests"`
}

// buildConformance gives the program, built unless the caller of the tests has
// done so.
func buildConformance(t *testing.T) string {
	t.Helper()

	const name = "provider-conformance"

	if given := os.Getenv(installation.BinariesEnv); given != "" {
		path := filepath.Join(given, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}

	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-p", "2", "-o", path, "./cmd/"+name)
	build.Dir = filepath.Join(root, "sdk")
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")

	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", name, err, output)
	}

	return path
}

// run runs the kit against a provider of the installation, which it starts
// once more, with certificates of its own. notExercised are the tests that the
// backend leaves nothing to try for.
func (k *conformanceKit) run(t *testing.T, name string, target map[string]any, notExercised ...string) {
	t.Helper()

	account := types.NamespacedName{Namespace: "provider-" + name, Name: "external-secrets-provider-" + name}

	kubeconfig, err := product.ControlPlane.KubeconfigFor(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	asJSON, output := filepath.Join(dir, "report.json"), filepath.Join(dir, "provider.log")
	started := map[string]any{"args": append([]string{
		product.Program("provider-" + name), "--listen={address}", "--tls-dir={tlsDir}", "--kubeconfig=" + kubeconfig,
		"--metrics-listen=", "--log-level=debug", "--log-format=text",
	}, providerFlags[name]...)}
	target["profile"], target["command"] = "full", started

	if k.env != nil {
		started["env"] = k.env
	}

	text, err := yaml.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(dir, "target.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*conformanceLimit)
	defer cancel()

	command := exec.CommandContext(ctx, k.path, "--report-json", asJSON, "--provider-output", output, file)

	lines, err := command.CombinedOutput()
	if err != nil {
		printed, _ := os.ReadFile(output)
		t.Logf("the provider printed:\n%s", printed)
		t.Errorf("provider-conformance: %v\n%s", err, lines)
	}

	text, err = os.ReadFile(asJSON)
	if err != nil {
		t.Fatal(err)
	}

	var report conformanceReport
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}

	t.Logf("%s: %d passed, %d failed, %d skipped, %d not exercised, in %.1f s", name,
		report.Counts.Passed, report.Counts.Failed, report.Counts.Skipped, report.Counts.NotExercised, report.Seconds)

	if !report.Conformant || report.Counts.Failed > 0 || report.Counts.Passed == 0 {
		t.Errorf("the report: %+v", report.Counts)
	}

	if took := time.Duration(report.Seconds * float64(time.Second)); took > conformanceLimit {
		t.Errorf("it took %s", took)
	}

	absent, _ := target["absent"].(map[string]string)

	for _, claim := range report.Claims {
		want := "pass"
		if slices.ContainsFunc(slices.Collect(maps.Keys(absent)), func(name string) bool { return strings.EqualFold(name, claim.Capability) }) {
			want = "not-exercised"
		}

		if claim.Result != want {
			t.Errorf("the claim of %s: %s (%s)", claim.Capability, claim.Result, claim.Message)
		}
	}

	k.claims(t, name, report, target)

	var left []string

	for _, test := range report.Tests {
		if test.Result == "not-exercised" {
			left = append(left, test.ID)
		}
	}

	if slices.Sort(left); !slices.Equal(left, notExercised) {
		t.Errorf("not exercised (-want +got):\n%s", cmp.Diff(notExercised, left))
	}
}

// configOf is the reference to a provider config that exists.
// claims compares what the provider claims with what its metadata.yaml says,
// and so with the table of its README.
func (k *conformanceKit) claims(t *testing.T, name string, report conformanceReport, target map[string]any) {
	t.Helper()

	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}

	said, err := metadata.Load(filepath.Join(root, "providers", name))
	if err != nil {
		t.Fatal(err)
	}

	config, _ := target["config"].(map[string]any)

	claimed := make([]string, 0, len(report.Claims))
	for _, claim := range report.Claims {
		claimed = append(claimed, claim.Capability)
	}

	for _, kind := range said.Kinds {
		if kind.Name != config["kind"] {
			continue
		}

		wanted := make([]string, 0, len(kind.Capabilities))
		for _, capability := range kind.Capabilities {
			wanted = append(wanted, strings.ToUpper(capability))
		}

		if diff := cmp.Diff(wanted, claimed); diff != "" {
			t.Errorf("claims of %s (-metadata.yaml +provider):\n%s", kind.Name, diff)
		}

		return
	}

	t.Errorf("providers/%s/metadata.yaml lists no kind %v", name, config["kind"])
}

func configOf(t *testing.T, kind, namespace, name string) map[string]any {
	t.Helper()

	object := &unstructured.Unstructured{}
	object.SetAPIVersion(v2alpha1.DefaultConfigAPIVersion)
	object.SetKind(kind)

	if err := product.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}

	return map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": kind, "namespace": namespace, "name": name,
		"uid": string(object.GetUID()), "generation": object.GetGeneration(),
	}
}

func (k *conformanceKit) fake(t *testing.T) {
	const (
		first  = `{"password":"first-password","user":"app-user"}`
		second = `{"password":"second-password","user":"app-user"}`
	)

	ns := newNamespace(t)
	data := `
  data:
  - {key: app/db, version: "1", value: '` + first + `'}
  - {key: app/db, version: "2", value: '` + second + `', metadata: {team: blue-team}}
  - {key: app/text, value: a-plain-text, metadata: {team: red-team}}
  - {key: binary, binaryValue: AAEC/w==}
  - {key: by-hand, value: made-by-hand}
`
	config := "apiVersion: provider.secretstore.external-secrets.io/v2alpha1\nkind: Fake\nmetadata: {name: NAME}\nspec:"

	apply(t, ns, strings.ReplaceAll(config, "NAME", "backend")+data)
	apply(t, ns, strings.ReplaceAll(config, "NAME", "slow")+data+"  latency: 2500ms\n")
	apply(t, ns, strings.ReplaceAll(config, "NAME", "invalid")+"\n  error: {code: Unauthenticated, message: the login is refused}\n")

	target := map[string]any{
		"config": configOf(t, "Fake", ns, "backend"),
		"fixtures": map[string]any{
			"secrets": []any{
				map[string]any{
					"key": "app/db", "value": second, "properties": map[string]string{"password": "second-password"}, "missingProperty": "nothing",
					"map":      map[string]string{"password": "second-password", "user": "app-user"},
					"versions": map[string]string{"1": first, "2": second}, "missingVersion": "3", "metadata": map[string]string{"team": "blue-team"},
				},
				map[string]any{"key": "app/text", "value": "a-plain-text"},
				map[string]any{"key": "binary", "binary": "AAEC/w=="},
			},
			"missingKey": "nothing",
			"find": []any{
				map[string]any{"path": "app/", "keys": []string{"app/db", "app/text"}},
				map[string]any{"tags": map[string]string{"team": "red-team"}, "keys": []string{"app/text"}},
			},
			"write":         map[string]any{"prefix": "written/", "unowned": "by-hand"},
			"invalidConfig": configOf(t, "Fake", ns, "invalid"),
			"slow":          map[string]any{"config": configOf(t, "Fake", ns, "slow"), "key": "app/db"},
		},
	}

	k.run(t, "fake", target)

	t.Run("over a socket", func(t *testing.T) {
		// A socket's path is short.
		dir, err := os.MkdirTemp("", "kit") //nolint:usetesting // t.TempDir is too long for a socket's path
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)

		target["address"] = "unix://" + filepath.Join(dir, "p.sock")
		k.run(t, "fake", target)
	})
}

// slowly is a Vault that takes its time, behind a proxy.
func slowly(t *testing.T) string {
	t.Helper()

	address, err := url.Parse(backend.Address())
	if err != nil {
		t.Fatal(err)
	}

	proxy := httputil.NewSingleHostReverseProxy(address)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		select {
		case <-time.After(2500 * time.Millisecond):
			proxy.ServeHTTP(w, request)
		case <-request.Context().Done():
		}
	}))
	t.Cleanup(server.Close)

	return server.URL
}

func (k *conformanceKit) vault(t *testing.T) {
	ns := newNamespace(t)

	for _, password := range []string{"first-password", "second-password"} {
		write(t, "secret/"+ns+"/app/db", map[string]any{"password": password, "user": "app-user"})
	}

	write(t, "secret/"+ns+"/app/other", map[string]any{"token": "another-secret"})
	write(t, "secret/"+ns+"/by-hand", map[string]any{"made": "by hand"})

	if _, err := backend.Request(t.Context(), http.MethodPost, "secret/metadata/"+ns+"/app/db", map[string]any{"custom_metadata": map[string]any{"team": "blue-team"}}); err != nil {
		t.Fatal(err)
	}

	vaultToken(t, ns, backend.RootToken())

	config := func(name, server, token string) {
		apply(t, ns, strings.NewReplacer("NAME", name, "SERVER", server, "TOKEN", token).Replace(`
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Vault
metadata:
  name: NAME
spec:
  server: SERVER
  path: secret
  auth:
    tokenSecretRef: {name: TOKEN, key: token}
`))
	}

	config("backend", backend.Address(), "vault-token")
	config("slow", slowly(t), "vault-token")
	config("invalid", backend.Address(), "no-such-token")

	credential := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(credential, []byte(backend.RootToken()), 0o600); err != nil {
		t.Fatal(err)
	}

	db, latest := ns+"/app/db", `{"password":"second-password","user":"app-user"}`

	k.run(t, "vault", map[string]any{
		"config": configOf(t, "Vault", ns, "backend"),
		"absent": map[string]string{"Watch": "this Vault is of the community edition, which tells of no events"},
		"fixtures": map[string]any{
			"secrets": []any{
				map[string]any{
					"key": db, "value": latest, "properties": map[string]string{"password": "second-password"}, "missingProperty": "nothing",
					"map":      map[string]string{"password": "second-password", "user": "app-user"},
					"versions": map[string]string{"1": `{"password":"first-password","user":"app-user"}`, "2": latest}, "missingVersion": "3",
					"metadata": map[string]string{"team": "blue-team"},
				},
				map[string]any{"key": ns + "/app/other", "value": `{"token":"another-secret"}`},
			},
			"missingKey": ns + "/nothing",
			"find": []any{
				map[string]any{"path": ns + "/app", "keys": []string{db, ns + "/app/other"}},
				map[string]any{"path": ns + "/app", "tags": map[string]string{"team": "blue-team"}, "keys": []string{db}},
			},
			"write":           map[string]any{"prefix": ns + "/written/", "documents": true, "unowned": ns + "/by-hand"},
			"invalidConfig":   configOf(t, "Vault", ns, "invalid"),
			"slow":            map[string]any{"config": configOf(t, "Vault", ns, "slow"), "key": db},
			"credentialFiles": []string{credential},
		},
	},
		"claims.watch-is-served",
		"read.binary", // a KV engine holds JSON
		"watch.says-that-it-stands", "watch.tells-of-changes",
	)
}
