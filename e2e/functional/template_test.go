package functional

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/testkit/suite"
)

const many = `  - {key: team/a/db, value: '{"user":"a","shared":"1"}', metadata: {team: a}}
  - {key: team/b/db, value: '{"user":"b","extra":"2"}', metadata: {team: b}}
  - {key: other, value: '{"user":"c"}', metadata: {team: a}}
`

func TestFindAndRewrite(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeWith(many)+
		suite.ES("name", "  dataFrom: [{find: {name: {regexp: ^team/}}}]\n")+
		suite.ES("tags", "  dataFrom: [{find: {tags: {team: a}, conversionStrategy: Unicode}}]\n")+
		suite.ES("path", "  dataFrom: [{find: {path: team/b}}]\n")+
		suite.ES("rewritten", `  dataFrom:
  - find: {path: team/}
    rewrite:
    - regexp: {source: "^team/(.*)/db$", target: "$1"}
    - transform: {template: "DB_{{ .value | upper }}"}
`)+
		suite.ES("merged", `  dataFrom:
  - find: {path: team/}
    rewrite:
    - merge: {conflictPolicy: Ignore}
`)+
		suite.ES("conflict", `  dataFrom:
  - find: {path: team/}
    rewrite: [{merge: {}}]
`)+
		suite.ES("nothing", "  target: {deletionPolicy: Delete}\n  dataFrom: [{find: {path: nowhere}}]\n"))

	for name, want := range map[string]map[string]string{
		"name":      {"team_a_db": `{"user":"a","shared":"1"}`, "team_b_db": `{"user":"b","extra":"2"}`},
		"tags":      {"team_U002f_a_U002f_db": `{"user":"a","shared":"1"}`, "other": `{"user":"c"}`},
		"path":      {"team_b_db": `{"user":"b","extra":"2"}`},
		"rewritten": {"DB_A": `{"user":"a","shared":"1"}`, "DB_B": `{"user":"b","extra":"2"}`},
		"merged":    {"user": "b", "shared": "1", "extra": "2"},
	} {
		product.Synced(t, ns, name)

		if diff := cmp.Diff(want, product.Data(t, ns, name)); diff != "" {
			t.Errorf("%s: data (-want +got):\n%s", name, diff)
		}
	}

	product.Failing(t, ns, "conflict", "spec.dataFrom[0].find: rewrite[0]", `"user" (in "team/a/db" and "team/b/db")`)
	product.ReasonIs(t, ns, "nothing", esv1.ReasonSecretDeleted)
}

func TestTemplates(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	templates := `---
apiVersion: v1
kind: ConfigMap
metadata: {name: templates}
data:
  config.ini: "user={{ .user }}"
  keys: "one: '{{ .user }}'\ntwo: \"2\""
---
apiVersion: v1
kind: Secret
metadata: {name: templates}
stringData:
  secret.ini: "pass={{ .password }}"
`
	product.Apply(t, ns, suite.FakeWith("  - {key: db, value: '{\"user\":\"app\",\"password\":\"s3cret\"}'}\n")+templates+
		suite.ES("app", `  target:
    template:
      type: kubernetes.io/basic-auth
      metadata:
        labels: {user: "{{ .user }}"}
        annotations: {note: "for {{ .user | upper }}"}
      data:
        username: "{{ .user }}"
        url: "https://{{ .user }}:{{ .password | urlquery }}@db"
      templateFrom:
      - configMap: {name: templates, items: [{key: config.ini}, {key: keys, templateAs: KeysAndValues}]}
      - secret: {name: templates, items: [{key: secret.ini}]}
      - literal: "extra: {{ .user | b64enc }}"
        valuesDecodingStrategy: Base64
      - literal: "from: literal"
        target: Labels
  dataFrom: [{extract: {key: db}}]
`)+
		suite.ES("kept", `  target: {template: {mergePolicy: Merge, data: {added: "{{ .user }}"}}}
  dataFrom: [{extract: {key: db}}]
`)+
		suite.ES("bad", `  target: {template: {data: {x: "first\n{{ .nothing }}"}}}
  dataFrom: [{extract: {key: db}}]
`)+
		suite.ES("forbidden", `  target: {template: {data: {x: "{{ env \"HOME\" }}"}}}
  dataFrom: [{extract: {key: db}}]
`))

	product.Synced(t, ns, "app")

	want := map[string]string{
		"username": "app", "url": "https://app:s3cret@db", "config.ini": "user=app", "one": "app", "two": "2", "secret.ini": "pass=s3cret", "extra": "app",
	}
	if diff := cmp.Diff(want, product.Data(t, ns, "app")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}

	secret, err := product.Secret(t.Context(), ns, "app")
	if err != nil {
		t.Fatal(err)
	}

	if secret.Type != "kubernetes.io/basic-auth" || secret.Labels["user"] != "app" || secret.Labels["from"] != "literal" || secret.Annotations["note"] != "for APP" {
		t.Errorf("type %s, labels %v, annotations %v", secret.Type, secret.Labels, secret.Annotations)
	}

	product.Synced(t, ns, "kept")

	if diff := cmp.Diff(map[string]string{"user": "app", "password": "s3cret", "added": "app"}, product.Data(t, ns, "kept")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}

	t.Log(product.Failing(t, ns, "bad", "spec.target.template.data[x]", "line 2", "nothing"))
	t.Log(product.Failing(t, ns, "forbidden", "env"))

	// A template that changes is followed at once, whatever the interval.
	product.Apply(t, ns, `---
apiVersion: v1
kind: ConfigMap
metadata: {name: templates}
data:
  config.ini: "USER={{ .user }}"
  keys: "one: '{{ .user }}'\ntwo: \"2\""
`)
	product.Holds(t, ns, "app", "config.ini", "USER=app")

	// One that is gone is reported.
	if out, err := product.Kubectl(t.Context(), "", "-n", ns, "delete", "configmap", "templates"); err != nil {
		t.Fatal(out, err)
	}

	product.Failing(t, ns, "app", `ConfigMap "templates" does not exist`)
	product.Apply(t, ns, templates)
	product.Synced(t, ns, "app")
}
