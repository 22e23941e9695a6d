// Package compat returns the hashes and names that the operator writes to
// objects. Their format is that of External Secrets Operator 2.9: neither of the
// two operators sees a change in an object that the other has written.
package compat

import (
	"crypto/sha3"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// maxFieldManager is the longest name of a field manager that upstream writes
// unchanged.
const maxFieldManager = 63

func sum(text string) string {
	digest := sha3.Sum224([]byte(text))

	return hex.EncodeToString(digest[:])
}

// DataHash is the value of the data-hash annotation for a Secret's data.
func DataHash(data map[string][]byte) string { return sum(fmt.Sprintf("%+v", data)) }

// ContentHash is the value of the data-hash annotation for an object that is no
// Secret, of its content as JSON. Upstream's is over spec or data alone: to it,
// the object has changed once.
func ContentHash(content []byte) string { return sum(string(content)) }

// KeysHash reports whether a Secret has the keys that were written, without
// reading it: it is compared with the keys that managedFields name.
func KeysHash(keys []string) string {
	sorted := slices.Sorted(slices.Values(keys))

	return Digest(strings.Join(sorted, "\n"))
}

// Keys of a Secret's data, for KeysHash.
func Keys(data map[string][]byte) []string { return slices.Collect(maps.Keys(data)) }

// Digest is a short digest of a text that is no secret.
func Digest(text string) string { return sum(text)[:16] }

// Owner is the value of the created-by label for an ExternalSecret.
func Owner(namespace, name string) string { return sum(namespace + "/" + name) }

// FieldManager under which an ExternalSecret's target is written.
func FieldManager(name string) string {
	if plain := esv1.FieldManagerPrefix + name; len(plain) <= maxFieldManager {
		return plain
	}

	return esv1.FieldManagerPrefix + "sha3/" + sum(name)
}

// SyncedVersion is the value of status.syncedResourceVersion: it changes with
// the spec, the labels and the annotations.
func SyncedVersion(meta *metav1.ObjectMeta) string {
	hashed := struct {
		annotations map[string]string
		labels      map[string]string
	}{meta.Annotations, meta.Labels}

	return fmt.Sprintf("%d-%s", meta.Generation, sum(fmt.Sprintf("%+v", hashed)))
}
