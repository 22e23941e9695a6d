package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/external-secrets/eso/testkit/conformance"
)

// An API that keeps marks of owners passes the kit in full, whether it decides by
// them or returns them.
func TestConformance(t *testing.T) {
	t.Parallel()

	kit := conformance.New(t, product, "webhook")
	kit.Flags = providerFlags

	t.Run("the API decides by the owner", func(t *testing.T) {
		t.Parallel()
		conformsWebhook(t, kit, "")
	})
	t.Run("the API returns the owner", func(t *testing.T) {
		t.Parallel()
		conformsWebhook(t, kit, "  ownerHeader: X-Owner\n")
	})
}

func conformsWebhook(t *testing.T, kit *conformance.Kit, fields string) {
	t.Helper()

	const (
		first  = `{"password":"first-password","user":"app-user"}`
		second = `{"password":"second-password","user":"app-user"}`
	)

	ns, api := product.Namespace(t), newWebhookAPI(t)
	api.slow = 2500 * time.Millisecond
	api.put("app/db", first)
	api.put("app/db", second)
	api.put("app/text", "a-plain-text")
	api.put("binary", "\x00\x01\x02\xff")
	api.put("by-hand", "made-by-hand")
	webhookCredentials(t, ns, api, apiToken)

	url := api.URL + "/v1/{{ .remoteRef.key | path }}"
	reading := url + "?version={{ .remoteRef.version }}"
	fields += strings.ReplaceAll(`
  push:
    url: "URL"
    headers:
      X-Owner: "{{ .owner }}"
      X-Adopt: "{{ .adopt }}"
  delete:
    url: "URL"
    headers:
      X-Owner: "{{ .owner }}"
`, "URL", url)

	product.Apply(t, ns, webhookConfig("backend", reading, fields)+
		webhookConfig("slow", strings.Replace(reading, "/v1/", "/slow/", 1), "")+
		strings.Replace(webhookConfig("invalid", reading, ""), "key: token", "key: no-such-key", 1))

	credential := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(credential, []byte(apiToken), 0o600); err != nil {
		t.Fatal(err)
	}

	kit.Run(t, map[string]any{
		"config": kit.ConfigOf(t, "Webhook", ns, "backend"),
		"fixtures": map[string]any{
			"secrets": []any{
				map[string]any{
					"key": "app/db", "value": second, "properties": map[string]string{"password": "second-password"}, "missingProperty": "nothing",
					"map":      map[string]string{"password": "second-password", "user": "app-user"},
					"versions": map[string]string{"1": first, "2": second}, "missingVersion": "3",
				},
				map[string]any{"key": "app/text", "value": "a-plain-text"},
				map[string]any{"key": "binary", "binary": "AAEC/w=="},
			},
			"missingKey":      "nothing",
			"write":           map[string]any{"prefix": "conformance/", "unowned": "by-hand"},
			"invalidConfig":   kit.ConfigOf(t, "Webhook", ns, "invalid"),
			"slow":            map[string]any{"config": kit.ConfigOf(t, "Webhook", ns, "slow"), "key": "app/db"},
			"credentialFiles": []string{credential},
		},
	}, "read.metadata") // The provider supports no metadata.
}
