package suite

import (
	"strings"
	"testing"
)

// FakeStore is a config of the fake provider, "backend", and a SecretStore of
// it, "store".
const FakeStore = `
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Fake
metadata:
  name: backend
spec:
  data:
  - key: db
    version: "1"
    value: '{"user":"old","password":"old"}'
  - key: db
    version: "2"
    value: '{"user":"app","password":"s3cret","port":5432,"tls":{"enabled":true}}'
  - key: odd
    value: '{"a/b":"slash","plain":"cGxhaW4="}'
  - key: encoded
    value: aGVsbG8=
  - key: binary
    binaryValue: AAECA/8=
    metadata:
      team: a
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: store
spec:
  providerConfig:
    providerRef:
      kind: Fake
      name: backend
`

// FakeWith is FakeStore with other secrets, as lines of spec.data.
func FakeWith(data string) string {
	head, tail, _ := strings.Cut(FakeStore, "  data:\n")
	_, tail, _ = strings.Cut(tail, "---\n")

	return head + "  data:\n" + data + "---\n" + tail
}

// StoreAt is FakeStore with a store of another name, whose provider listens at
// an address; auth is spec.providerConfig.auth, and may be empty.
func StoreAt(name, address, auth string) string {
	config := "  providerConfig:\n    address: " + address
	if auth != "" {
		config += "\n    auth: " + auth
	}

	return strings.NewReplacer("name: store", "name: "+name, "  providerConfig:", config).Replace(FakeStore)
}

// SimpleES is an ExternalSecret of a store that reads one property of the key
// "db", once an hour.
func SimpleES(name, store string) string {
	return strings.NewReplacer("NAME", name, "STORE", store).Replace(`---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: NAME
spec:
  refreshInterval: 1h
  secretStoreRef:
    apiVersion: secretstore.external-secrets.io/v2alpha1
    name: STORE
  data:
  - secretKey: password
    remoteRef: {key: db, property: password}
`)
}

// ES is an ExternalSecret of the store "store", refreshed every second, with
// further lines of its spec.
func ES(name, spec string) string {
	return `---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: ` + name + `
spec:
  refreshInterval: 1s
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
` + spec
}

// genericTargetsRole is the name of the role in GenericTargets.
const genericTargetsRole = "generic-targets"

// GenericTargets are what an administrator adds where targets other than Secrets
// are wanted, and a kind to try them with.
const GenericTargets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-preserve-unknown-fields: true
            properties:
              mode: {type: string, default: usual}
              flag: {type: boolean}
              flags: {type: array, items: {type: boolean}}
              ports:
                type: array
                items:
                  type: object
                  properties:
                    port: {type: integer}
                    protocol: {type: string, default: TCP}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: generic-targets
  labels: {external-secrets.io/aggregate-to-operator: "true"}
rules:
- apiGroups: ["", example.com]
  resources: [configmaps, things]
  verbs: [get, list, watch, create, patch, delete]
`

// RoundTrips applies a manifest twice and compares.
func (s *Suite) RoundTrips(t *testing.T, namespace, manifest string) {
	t.Helper()

	args := []string{"-n", namespace, "apply", "--server-side", "--validate=strict", "--field-manager", "round-trip", "-f", "-"}
	if out, err := s.Kubectl(t.Context(), manifest, args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	t.Cleanup(func() {
		_, _ = s.Kubectl(t.Context(), manifest, "-n", namespace, "delete", "--ignore-not-found", "--wait=false", "-f", "-")
	})

	// kubectl diff exits with 1 where applying would change something.
	if out, err := s.Kubectl(t.Context(), manifest, "-n", namespace, "diff", "--server-side", "--field-manager", "round-trip", "-f", "-"); err != nil {
		t.Errorf("the second apply would change something: %v\n%s", err, out)
	}

	first, err := s.Kubectl(t.Context(), manifest, "-n", namespace, "get", "-f", "-", "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{'\\n'}{end}{.kind} {.metadata.generation}")
	if err != nil {
		t.Fatal(err)
	}

	if out, err := s.Kubectl(t.Context(), manifest, args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	second, err := s.Kubectl(t.Context(), manifest, "-n", namespace, "get", "-f", "-", "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{'\\n'}{end}{.kind} {.metadata.generation}")
	if err != nil {
		t.Fatal(err)
	}

	if first != second {
		t.Errorf("the second apply caused another generation:\n%s\n%s", first, second)
	}
}
