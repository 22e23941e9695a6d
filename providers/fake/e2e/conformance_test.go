package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/external-secrets/eso/testkit/conformance"
)

// The provider conforms to the protocol, over TLS and over a socket.
func TestConformance(t *testing.T) {
	t.Parallel()
	conforms(t, conformance.New(t, product, "fake"))
}

func conforms(t *testing.T, kit *conformance.Kit) {
	t.Helper()

	const (
		first  = `{"password":"first-password","user":"app-user"}`
		second = `{"password":"second-password","user":"app-user"}`
	)

	ns := product.Namespace(t)
	data := `
  data:
  - {key: app/db, version: "1", value: '` + first + `'}
  - {key: app/db, version: "2", value: '` + second + `', metadata: {team: blue-team}}
  - {key: app/text, value: a-plain-text, metadata: {team: red-team}}
  - {key: binary, binaryValue: AAEC/w==}
  - {key: by-hand, value: made-by-hand}
`
	config := "apiVersion: provider.secretstore.external-secrets.io/v2alpha1\nkind: Fake\nmetadata: {name: NAME}\nspec:"

	product.Apply(t, ns, strings.ReplaceAll(config, "NAME", "backend")+data)
	product.Apply(t, ns, strings.ReplaceAll(config, "NAME", "slow")+data+"  latency: 2500ms\n")
	product.Apply(t, ns, strings.ReplaceAll(config, "NAME", "invalid")+"\n  error: {code: Unauthenticated, message: the login is refused}\n")

	target := map[string]any{
		"config": kit.ConfigOf(t, "Fake", ns, "backend"),
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
			"invalidConfig": kit.ConfigOf(t, "Fake", ns, "invalid"),
			"slow":          map[string]any{"config": kit.ConfigOf(t, "Fake", ns, "slow"), "key": "app/db"},
		},
	}

	kit.Run(t, target)

	t.Run("over a socket", func(t *testing.T) {
		// A socket's path is short.
		dir, err := os.MkdirTemp("", "kit") //nolint:usetesting // t.TempDir is too long for a socket's path
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)

		target["address"] = "unix://" + filepath.Join(dir, "p.sock")
		kit.Run(t, target)
	})
}
