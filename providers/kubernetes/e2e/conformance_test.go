package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/external-secrets/eso/testkit/conformance"
)

// The provider conforms to the protocol with both of its kinds.
func TestConformance(t *testing.T) {
	t.Parallel()

	kit := conformance.New(t, product, "kubernetes")

	t.Run("Kubernetes", func(t *testing.T) {
		t.Parallel()
		conformsKubernetes(t, kit)
	})
	t.Run("Resource", func(t *testing.T) {
		t.Parallel()
		conformsResource(t, kit)
	})
}

// The kit's own tests write Secrets, so that the login has every right that a
// PushSecret needs.
func conformsKubernetes(t *testing.T, kit *conformance.Kit) {
	t.Helper()

	source, ns := product.Namespace(t), product.Namespace(t)
	account(t, product.Client, ns, source, ofSecrets("get", "list", "watch", "create", "update", "delete"))

	whole := `{"password":"a-password","user":"app-user"}`
	sourceSecret(t, product.Client, source, "db", map[string][]byte{"password": []byte("a-password"), "user": []byte("app-user")}, map[string]string{"team": "blue-team"})
	sourceSecret(t, product.Client, source, "other", map[string][]byte{"token": []byte("another-secret")}, nil)
	sourceSecret(t, product.Client, source, "by-hand", map[string][]byte{"made": []byte("by hand")}, nil)

	product.Apply(t, ns, strings.ReplaceAll(kubernetesStore, "SOURCE", source))
	product.Apply(t, ns, strings.NewReplacer("name: backend", "name: invalid", "name: store", "name: invalid", "name: reader", "name: absent", "SOURCE", source).Replace(kubernetesStore))
	product.Apply(t, ns, strings.NewReplacer("name: backend", "name: slow", "name: store", "name: slow", "SOURCE", source, "  auth:", slowAPIServer(t, ns)+"  auth:").Replace(kubernetesStore))

	kit.Run(t, map[string]any{
		"config": kit.ConfigOf(t, "Kubernetes", ns, "backend"),
		"fixtures": map[string]any{
			"secrets": []any{
				map[string]any{
					"key": "db", "value": whole, "properties": map[string]string{"password": "a-password"}, "missingProperty": "nothing",
					"map": map[string]string{"password": "a-password", "user": "app-user"}, "metadata": map[string]string{"labels.team": "blue-team"},
				},
				map[string]any{"key": "other", "value": `{"token":"another-secret"}`},
			},
			"missingKey": "nothing",
			"find": []any{
				map[string]any{"nameRegexp": "^(db|other)$", "keys": []string{"db", "other"}},
				map[string]any{"tags": map[string]string{"team": "blue-team"}, "keys": []string{"db"}},
			},
			"write":         map[string]any{"prefix": "written-", "documents": true, "unowned": "by-hand"},
			"invalidConfig": kit.ConfigOf(t, "Kubernetes", ns, "invalid"),
			"slow":          map[string]any{"config": kit.ConfigOf(t, "Kubernetes", ns, "slow"), "key": "db"},
		},
	}, "read.binary", "read.missing-version-is-not-found", "read.version") // As a whole it is JSON, and it has no versions.
}

func conformsResource(t *testing.T, kit *conformance.Kit) {
	t.Helper()

	source, ns := product.Namespace(t), product.Namespace(t)
	account(t, product.Client, ns, source, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}})

	for name, data := range map[string]map[string]string{"db": {"host": "db.example.com", "port": "5432"}, "cache": {"host": "cache.example.com"}, "hidden": {"host": "hidden"}} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: source, Name: name, Labels: map[string]string{"tier": name}}, Data: data}
		if err := product.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	config := `
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Resource
metadata:
  name: NAME
spec:
  remoteNamespace: SOURCE
  auth:
    serviceAccount: {name: ACCOUNT}
  allow:
  - {apiVersion: v1, resource: configmaps, names: [db, "c.*"], fields: [data]}
`
	product.Apply(t, ns, strings.NewReplacer("NAME", "backend", "SOURCE", source, "ACCOUNT", "reader").Replace(config))
	product.Apply(t, ns, strings.NewReplacer("NAME", "invalid", "SOURCE", source, "ACCOUNT", "absent").Replace(config))
	product.Apply(t, ns, strings.NewReplacer("NAME", "slow", "SOURCE", source, "ACCOUNT", "reader", "  auth:", slowAPIServer(t, ns)+"  auth:").Replace(config))

	kit.Run(t, map[string]any{
		"config": kit.ConfigOf(t, "Resource", ns, "backend"),
		"fixtures": map[string]any{
			"secrets": []any{
				map[string]any{
					"key": "db", "value": `{"data":{"host":"db.example.com","port":"5432"}}`, "properties": map[string]string{"data.host": "db.example.com"},
					"missingProperty": "metadata.uid", "map": map[string]string{"data": `{"host":"db.example.com","port":"5432"}`},
				},
				map[string]any{"key": "cache", "value": `{"data":{"host":"cache.example.com"}}`},
			},
			"missingKey": "cache-of-nothing",
			"find": []any{
				map[string]any{"keys": []string{"db", "cache"}},
				map[string]any{"tags": map[string]string{"tier": "db"}, "keys": []string{"db"}},
			},
			"invalidConfig": kit.ConfigOf(t, "Resource", ns, "invalid"),
			"slow":          map[string]any{"config": kit.ConfigOf(t, "Resource", ns, "slow"), "key": "db"},
		},
	}, "read.binary", "read.metadata", "read.missing-version-is-not-found", "read.version") // fields leaves metadata out.
}
