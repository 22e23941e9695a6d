package compat

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These stand on objects in users' clusters: they never change.
func TestMarkersStayAsTheyAre(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ why, got, want string }{
		{"the hash is SHA3-224 of Go's %+v", DataHash(map[string][]byte{"b": []byte("x"), "a": {0, 1}}), sum("map[a:[0 1] b:[120]]")},
		{"SHA3-224 itself, of nothing", sum(""), "6b4e03423667dbb73b6e15454f0eb1abd4597f9a1b078e3f5b5a6bc7"},
		{"the owner is namespace and name", Owner("ns", "app"), sum("ns/app")},
		{"a short name stands as it is", FieldManager("app"), "externalsecrets.external-secrets.io/app"},
		{"the longest name that does", FieldManager(strings.Repeat("a", 27)), "externalsecrets.external-secrets.io/" + strings.Repeat("a", 27)},
		{"a longer one is hashed", FieldManager(strings.Repeat("a", 28)), "externalsecrets.external-secrets.io/sha3/" + sum(strings.Repeat("a", 28))},
		{
			"generation, and the hash of annotations and labels",
			SyncedVersion(&metav1.ObjectMeta{Generation: 7, Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"}}),
			"7-" + sum("{annotations:map[a:2] labels:map[l:1]}"),
		},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.why, c.got, c.want)
		}
	}

	if KeysHash([]string{"b", "a"}) != KeysHash([]string{"a", "b"}) || KeysHash([]string{"a"}) == KeysHash([]string{"b"}) {
		t.Error("the hash of keys must depend on the keys and not on their order")
	}
}
