package functional

import (
	"strings"
	"testing"
)

const regexStore = `
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: ClusterSecretStore
metadata: {name: NAME}
spec:
  conditions:
  - namespaces: [x]
  - namespaceRegexes: [REGEXES]
  providerConfig:
    providerRef: {kind: Fake, name: backend, namespace: x}
`

// An expression that meant something else to External Secrets Operator is
// reported when it is written; one that is none is refused.
func TestRegexesAtAdmission(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)

	for _, c := range []struct {
		why, regexes string
		want         []string
		refused      bool
	}{
		{why: "anchored, or open on purpose", regexes: `'^team-a$', '.*-prod$', '^team-.*', '.*'`},
		{
			why: "what upstream would have found inside of names", regexes: `'team-a', '^team-a$', 'prod$'`,
			want: []string{"Warning:", "spec.conditions.namespaceRegexes: team-a, prod$ matches whole names only"},
		},
		{why: "no expression", regexes: `'te(am'`, refused: true, want: []string{"spec.conditions[1].namespaceRegexes[0]"}},
		{why: "no expression but for the anchors", regexes: `'x)|(.*'`, refused: true, want: []string{"spec.conditions[1].namespaceRegexes[0]"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			manifest := strings.NewReplacer("NAME", ns, "REGEXES", c.regexes).Replace(regexStore)

			out, err := product.Kubectl(t.Context(), manifest, "apply", "--server-side", "--validate=strict", "-f", "-")
			if (err != nil) != c.refused || (c.want == nil && strings.Contains(out, "Warning")) {
				t.Errorf("err = %v\n%s", err, out)
			}

			for _, text := range c.want {
				if !strings.Contains(out, text) {
					t.Errorf("the answer lacks %q: %s", text, out)
				}
			}

			t.Log(out)

			if _, err := product.Kubectl(t.Context(), "", "delete", "clustersecretstore", ns, "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		})
	}
}
