package mark

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/external-secrets/eso/sdk/provider"
)

// A mark is what a tag can hold, and another for each owner.
func TestOf(t *testing.T) {
	if got := Of("a/b:c@d"); got != "a/b:c@d" {
		t.Errorf("an owner that a tag can hold: %q", got)
	}

	seen := map[string]bool{}

	for _, owner := range []string{"a*", "a?", strings.Repeat("x", 257), strings.Repeat("x", 258)} {
		got := Of(owner)
		if seen[got] || len(got) > maxTag || !valid.MatchString(got) {
			t.Errorf("%.10q: %q", owner, got)
		}

		seen[got] = true
	}
}

func TestTake(t *testing.T) {
	for _, test := range []struct {
		name, why string
		tags      map[string]string
		adopt     bool
		unmarked  bool
		refused   bool
	}{
		{"ours", "it carries our mark", Tags("o", nil), false, false, false},
		{"another's", "it stays, adopt or not", Tags("p", nil), true, false, true},
		{"nobody's", "it was made by hand", nil, false, false, true},
		{"nobody's, to adopt", "it was asked for", nil, true, true, false},
		{"ESO v1's", "it has no owner yet", map[string]string{Managed: ManagedBy}, false, true, false},
		{"somebody else's tool's", "the tag has another meaning", map[string]string{Managed: "terraform"}, false, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			unmarked, err := Take("k", test.tags, "o", test.adopt)
			if unmarked != test.unmarked || (err != nil) != test.refused {
				t.Errorf("%s: %t, %v", test.why, unmarked, err)
			}

			if err != nil && provider.AsError(err).Code != codes.FailedPrecondition {
				t.Errorf("%s: %v", test.why, err)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	got := Missing(map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "1", "b": "3", "c": ""})
	if diff := cmp.Diff(map[string]string{"b": "3", "c": ""}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
