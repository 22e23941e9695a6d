package tags

import (
	"strings"
	"testing"
)

// An owner is stored as it is where a tag can hold it, and as a hash otherwise.
// The form must never change: secrets that were pushed stay owned by it.
func TestOwners(t *testing.T) {
	t.Parallel()

	if got := Owners().Mark("a/b:c@d").Owner; got != "a/b:c@d" {
		t.Errorf("an owner that a tag can hold: %q", got)
	}

	if got, want := Owners().Mark("a*").Owner, "sha256:a4a87d31ed183b27cc7b3c6b21ee8333a2061517cd72e41f41f73f1cf6ef55ce"; got != want {
		t.Errorf("an owner that a tag cannot hold: %q", got)
	}

	seen := map[string]bool{}

	for _, owner := range []string{"a*", "a?", strings.Repeat("x", 257), strings.Repeat("x", 258)} {
		got := Owners().Mark(owner).Owner
		if seen[got] || len(got) > maxValue || !valid.MatchString(got) {
			t.Errorf("%.10q: %q", owner, got)
		}

		seen[got] = true
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()

	if got := string(Document(nil)); got != "{}" {
		t.Errorf("no tags: %s", got)
	}

	if got := string(Document(map[string]string{"b": "2", "a": "1"})); got != `{"a":"1","b":"2"}` {
		t.Errorf("tags: %s", got)
	}
}
