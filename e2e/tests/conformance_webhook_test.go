package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An API that keeps marks of owners passes the kit in full, whether it judges by
// them or tells them.
func TestConformanceWebhook(t *testing.T) {
	kit := &conformanceKit{path: buildConformance(t)}

	t.Run("the API judges whose a secret is", func(t *testing.T) { kit.webhook(t, "") })
	t.Run("the API tells whose a secret is", func(t *testing.T) { kit.webhook(t, "  ownerHeader: X-Owner\n") })
}

func (k *conformanceKit) webhook(t *testing.T, fields string) {
	const (
		first  = `{"password":"first-password","user":"app-user"}`
		second = `{"password":"second-password","user":"app-user"}`
	)

	ns, api := newNamespace(t), newWebhookAPI(t)
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

	apply(t, ns, webhookConfig("backend", reading, fields)+
		webhookConfig("slow", strings.Replace(reading, "/v1/", "/slow/", 1), "")+
		strings.Replace(webhookConfig("invalid", reading, ""), "key: token", "key: no-such-key", 1))

	credential := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(credential, []byte(apiToken), 0o600); err != nil {
		t.Fatal(err)
	}

	k.run(t, "webhook", map[string]any{
		"config": configOf(t, "Webhook", ns, "backend"),
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
			"invalidConfig":   configOf(t, "Webhook", ns, "invalid"),
			"slow":            map[string]any{"config": configOf(t, "Webhook", ns, "slow"), "key": "app/db"},
			"credentialFiles": []string{credential},
		},
	}, "read.metadata") // An API has none that the provider knows of.
}
