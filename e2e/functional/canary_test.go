package functional

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"
)

// A value that goes every way a value can go, the wrong ones above all, is
// found nowhere but in its targets: not in a log, an event, a status or a
// metric, in no encoding.
func TestNoValueLeaks(t *testing.T) {
	t.Parallel()

	const canary = "canary-7f3a91c2-tweet"

	ns := product.Namespace(t)
	// A number, for a value that is no text has other ways into an error.
	const pin = "73619842605"

	product.WriteVault(t, "secret/"+ns+"/bird", map[string]any{"song": canary, "pin": pin, "object": map[string]any{"inner": canary}})
	product.VaultStore(t, ns, product.Vault.RootToken())
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	key := ns + "/bird"
	extract := "  dataFrom: [{extract: {key: " + key + "}}]\n"
	number := "  data: [{secretKey: pin, remoteRef: {key: " + key + ", property: pin}}]\n"
	song := "  data: [{secretKey: song, remoteRef: {key: " + key + ", property: song}}]\n"
	template := func(text string) string {
		return "  target: {template: {data: {out: '" + text + "'}}}\n" + song
	}

	grafted := func(apiVersion, kind, path, text string) string {
		return "  target: {manifest: {apiVersion: " + apiVersion + ", kind: " + kind + "}, template: {templateFrom: [{target: " + path + ", literal: '" + text + "'}]}}\n"
	}

	good := map[string]string{
		"data": song, "extract": extract,
		"find":      "  dataFrom: [{find: {path: " + ns + "}}]\n",
		"template":  template("{{ .song | b64enc }}"),
		"map":       "  target: {manifest: {apiVersion: v1, kind: ConfigMap}}\n" + song,
		"generated": template(`{{ .song | sha256sum }}`),
	}
	bad := map[string]string{
		"decode":    "  data: [{secretKey: a, remoteRef: {key: " + key + ", property: song, decodingStrategy: Base64}}]\n",
		"property":  "  data: [{secretKey: a, remoteRef: {key: " + key + ", property: song.inner}}]\n",
		"merge":     "  dataFrom: [{find: {path: " + ns + "}, rewrite: [{merge: {priority: [nothing]}}]}, {extract: {key: " + key + "}, rewrite: [{merge: {}}]}]\n",
		"fail":      template("{{ fail .song }}"),
		"index":     template("{{ index .song 100 }}"),
		"atoi":      template("{{ .song | toDate .song .song }}"),
		"json":      template("{{ mustFromJson .song }}"),
		"semver":    template("{{ semver .song }}"),
		"pkcs12":    template("{{ .song | pkcs12key }}"),
		"regexp":    template("{{ mustRegexMatch \"(\" .song }}"),
		"yaml":      "  target: {template: {templateFrom: [{literal: '{{ .song }}'}]}}\n" + song,
		"label":     "  target: {template: {metadata: {labels: {x: '{{ .song }} !'}}}}\n" + song,
		"type":      "  target: {template: {type: kubernetes.io/tls}}\n" + song,
		"transform": "  dataFrom: [{extract: {key: " + key + "}, rewrite: [{transform: {template: \"{{ fail .value }}\"}}]}]\n",
		"huge":      template("{{ .song | repeat 100000 }}"),
		// The API server's error for an object that does not match its schema.
		"form-number": grafted("v1", "ConfigMap", "data.pin", "{{ .pin }}") + number,
		"form-map":    grafted("v1", "ConfigMap", "data.pin", "[{{ .pin }}, {{ .pin }}]") + number,
		"form-flag":   grafted("example.com/v1", "Thing", "spec.flag", "{{ .song }}") + song,
		"form-flags":  grafted("example.com/v1", "Thing", "spec.flags", "[{{ .song }}]") + song,
		"form-list":   grafted("example.com/v1", "Thing", "spec.flags", "{{ .song }}") + song,
		"form-item":   grafted("example.com/v1", "Thing", "spec.ports", "[{port: {{ .song }}, protocol: {{ .pin }}}]") + "  dataFrom: [{extract: {key: " + key + "}}]\n",
	}

	var manifests strings.Builder

	manifests.WriteString(suite.GenericTargets)

	for name, spec := range good {
		manifests.WriteString(suite.ES("good-"+name, spec))
	}

	for name, spec := range bad {
		manifests.WriteString(suite.ES("bad-"+name, spec))
	}

	product.Apply(t, ns, manifests.String())

	for name := range good {
		product.Synced(t, ns, "good-"+name)
	}

	for name := range bad {
		suite.Eventually(t, func(ctx context.Context) error {
			_, ready, err := product.ExternalSecret(ctx, ns, "bad-"+name)
			if err == nil && ready.Status != "False" {
				err = fmt.Errorf("ExternalSecret bad-%s does not fail: %+v", name, ready)
			}

			return err
		})
	}

	product.Holds(t, ns, "good-data", "song", canary)

	// A second try, and what a change of the target makes the operator write.
	if out, err := product.Kubectl(t.Context(), "", "-n", ns, "patch", "secret", "good-data", "-p", `{"data":{"song":null}}`); err != nil {
		t.Fatal(out, err)
	}

	product.Holds(t, ns, "good-data", "song", canary)

	// The message names the field, so that a user knows what to fix.
	product.ReasonIs(t, ns, "bad-form-flag", esv1.ReasonResourceSyncedError, ".spec.flag")
	product.ReasonIs(t, ns, "bad-form-number", esv1.ReasonResourceSyncedError, ".data.pin")

	clean := func(where string, text []byte) {
		t.Helper()

		for form, encoded := range map[string]string{
			"as a number": pin,
			"as it is":    canary, "in base64": base64.StdEncoding.EncodeToString([]byte(canary))[:20], "in hex": fmt.Sprintf("%x", canary),
			"escaped": strings.ReplaceAll(canary, "-", "%2D"),
		} {
			if i := bytes.Index(text, []byte(encoded)); i >= 0 {
				t.Errorf("%s holds the value %s: ...%s", where, form, text[max(0, i-200):min(len(text), i+80)])
			}
		}
	}

	log, err := os.ReadFile(product.LogFile)
	if err != nil {
		t.Fatal(err)
	}

	// Known text must be found, which shows that the search works.
	for _, text := range []string{`"namespace":"` + ns, "bad-transform"} {
		if !bytes.Contains(log, []byte(text)) {
			t.Fatalf("the log of %d bytes has nothing of this test: it lacks %s", len(log), text)
		}
	}

	// The API server writes into its own log what it does not understand, no
	// matter which client sent it.
	var ours []byte

	for line := range bytes.Lines(log) {
		if !bytes.HasPrefix(line, []byte("[kube-apiserver]")) {
			ours = append(ours, line...)
		}
	}

	clean("the log", ours)

	for _, list := range []client.ObjectList{&esv1.ExternalSecretList{}, &v2alpha1.SecretStoreList{}, &v2alpha1.SecretProviderList{}, &eventsv1.EventList{}, &corev1.EventList{}} {
		if err := product.Client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}

		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}

		clean(fmt.Sprintf("a %T", list), text)
	}

	for _, provider := range []string{product.Providers["fake"].MetricsURL(), product.Providers["vault"].MetricsURL(), product.MetricsURL()} {
		response, err := http.Get(provider) //nolint:noctx,gosec // loopback
		if err != nil {
			t.Fatal(err)
		}

		text, err := io.ReadAll(response.Body)
		response.Body.Close()

		if err != nil || len(text) == 0 {
			t.Fatalf("%s: %d bytes: %v", provider, len(text), err)
		}

		clean(provider, text)
	}
}
