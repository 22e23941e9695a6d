package tests

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

const many = `  - {key: team/a/db, value: '{"user":"a","shared":"1"}', metadata: {team: a}}
  - {key: team/b/db, value: '{"user":"b","extra":"2"}', metadata: {team: b}}
  - {key: other, value: '{"user":"c"}', metadata: {team: a}}
`

func TestFindAndRewrite(t *testing.T) {
	ns := newNamespace(t)
	apply(t, ns, fakeWith(many)+
		es("name", "  dataFrom: [{find: {name: {regexp: ^team/}}}]\n")+
		es("tags", "  dataFrom: [{find: {tags: {team: a}, conversionStrategy: Unicode}}]\n")+
		es("path", "  dataFrom: [{find: {path: team/b}}]\n")+
		es("rewritten", `  dataFrom:
  - find: {path: team/}
    rewrite:
    - regexp: {source: "^team/(.*)/db$", target: "$1"}
    - transform: {template: "DB_{{ .value | upper }}"}
`)+
		es("merged", `  dataFrom:
  - find: {path: team/}
    rewrite:
    - merge: {conflictPolicy: Ignore}
`)+
		es("conflict", `  dataFrom:
  - find: {path: team/}
    rewrite: [{merge: {}}]
`)+
		es("nothing", "  target: {deletionPolicy: Delete}\n  dataFrom: [{find: {path: nowhere}}]\n"))

	for name, want := range map[string]map[string]string{
		"name":      {"team_a_db": `{"user":"a","shared":"1"}`, "team_b_db": `{"user":"b","extra":"2"}`},
		"tags":      {"team_U002f_a_U002f_db": `{"user":"a","shared":"1"}`, "other": `{"user":"c"}`},
		"path":      {"team_b_db": `{"user":"b","extra":"2"}`},
		"rewritten": {"DB_A": `{"user":"a","shared":"1"}`, "DB_B": `{"user":"b","extra":"2"}`},
		"merged":    {"user": "b", "shared": "1", "extra": "2"},
	} {
		synced(t, ns, name)

		if diff := cmp.Diff(want, dataOf(t, ns, name)); diff != "" {
			t.Errorf("%s: data (-want +got):\n%s", name, diff)
		}
	}

	failing(t, ns, "conflict", "spec.dataFrom[0].find: rewrite[0]", `"user" (in "team/a/db" and "team/b/db")`)
	reasonIs(t, ns, "nothing", esv1.ReasonSecretDeleted)
}

func TestFindInVault(t *testing.T) {
	ns := newNamespace(t)
	write(t, "secret/"+ns+"/team/a", map[string]any{"k": "a"})
	write(t, "secret/"+ns+"/team/deep/b", map[string]any{"k": "b"})
	write(t, "secret/"+ns+"/other", map[string]any{"k": "c"})
	vaultStore(t, ns, backend.RootToken())
	eventuallyReady(t, ns)

	apply(t, ns, es("app", `  dataFrom:
  - find: {path: `+ns+`, name: {regexp: /team/}}
    rewrite: [{regexp: {source: "^.*/", target: ""}}]
`))
	synced(t, ns, "app")

	if diff := cmp.Diff(map[string]string{"a": `{"k":"a"}`, "b": `{"k":"b"}`}, dataOf(t, ns, "app")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestTemplates(t *testing.T) {
	ns := newNamespace(t)
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
	apply(t, ns, fakeWith("  - {key: db, value: '{\"user\":\"app\",\"password\":\"s3cret\"}'}\n")+templates+
		es("app", `  target:
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
		es("kept", `  target: {template: {mergePolicy: Merge, data: {added: "{{ .user }}"}}}
  dataFrom: [{extract: {key: db}}]
`)+
		es("bad", `  target: {template: {data: {x: "first\n{{ .nothing }}"}}}
  dataFrom: [{extract: {key: db}}]
`)+
		es("forbidden", `  target: {template: {data: {x: "{{ env \"HOME\" }}"}}}
  dataFrom: [{extract: {key: db}}]
`))

	synced(t, ns, "app")

	want := map[string]string{
		"username": "app", "url": "https://app:s3cret@db", "config.ini": "user=app", "one": "app", "two": "2", "secret.ini": "pass=s3cret", "extra": "app",
	}
	if diff := cmp.Diff(want, dataOf(t, ns, "app")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}

	secret, err := getSecret(t.Context(), ns, "app")
	if err != nil {
		t.Fatal(err)
	}

	if secret.Type != "kubernetes.io/basic-auth" || secret.Labels["user"] != "app" || secret.Labels["from"] != "literal" || secret.Annotations["note"] != "for APP" {
		t.Errorf("type %s, labels %v, annotations %v", secret.Type, secret.Labels, secret.Annotations)
	}

	synced(t, ns, "kept")

	if diff := cmp.Diff(map[string]string{"user": "app", "password": "s3cret", "added": "app"}, dataOf(t, ns, "kept")); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}

	t.Log(failing(t, ns, "bad", "spec.target.template.data[x]", "line 2", "nothing"))
	t.Log(failing(t, ns, "forbidden", "env"))

	// A template that changes is followed at once, whatever the interval.
	apply(t, ns, `---
apiVersion: v1
kind: ConfigMap
metadata: {name: templates}
data:
  config.ini: "USER={{ .user }}"
  keys: "one: '{{ .user }}'\ntwo: \"2\""
`)
	holds(t, ns, "app", "config.ini", "USER=app")

	// One that is gone is told.
	if out, err := product.Kubectl(t.Context(), "", "-n", ns, "delete", "configmap", "templates"); err != nil {
		t.Fatal(out, err)
	}

	failing(t, ns, "app", `ConfigMap "templates" does not exist`)
	apply(t, ns, templates)
	synced(t, ns, "app")
}
