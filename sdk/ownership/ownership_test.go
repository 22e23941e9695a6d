package ownership

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestCheck(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, why string
		backend   Backend
		mark      Mark
		owner     string
		adopt     bool
		want      string
	}{
		{name: "own", why: "an owner writes its secret again", mark: Mark{Owner: "a", Managed: true}, owner: "a"},
		{name: "own without the managed mark", why: "the owner decides, whatever became of the other mark", mark: Mark{Owner: "a"}, owner: "a"},
		{name: "another's", why: "two pushes must not overwrite each other", mark: Mark{Owner: "b", Managed: true}, owner: "a", want: `secret "k" belongs to another owner: its tag owner is "b"`},
		{name: "another's, to adopt", why: "adopting takes from no owner", mark: Mark{Owner: "b", Managed: true}, owner: "a", adopt: true, want: `secret "k" belongs to another owner: its tag owner is "b"`},
		{name: "ESO v1's", why: "it names no owner, and is taken over by an upgrade", mark: Mark{Managed: true}, owner: "a"},
		{name: "unmarked", why: "a secret that a user wrote stays", owner: "a", want: `secret "k" was not written by External Secrets: it has no tag owner; adopt it, or use another key`},
		{name: "unmarked, to adopt", why: "the user requested it", owner: "a", adopt: true},
		{name: "encoded", why: "marks are compared as they are stored", backend: Backend{Encode: strings.ToUpper}, mark: Mark{Owner: "A"}, owner: "a"},
		{name: "not encoded", why: "likewise", backend: Backend{Encode: strings.ToUpper}, mark: Mark{Owner: "a"}, owner: "a", want: `its tag owner is "a"`},
		{name: "private", why: "what is stored may be anything", backend: Backend{Private: true}, mark: Mark{Owner: "s3cret"}, owner: "a", want: `secret "k" belongs to another owner, by its tag owner`},
		{name: "no owner", why: "an empty owner owns nothing", mark: Mark{}, owner: "", want: "was not written by External Secrets"},
	} {
		test.backend.Place = "tag owner"
		err := test.backend.Check(`secret "k"`, test.mark, test.owner, test.adopt)

		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %s: %v", test.name, test.why, err)
		case test.want == "":
		case err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%s: %s: %v", test.name, test.why, err)
		case provider.AsError(err).Code != codes.FailedPrecondition || provider.AsError(err).Reason != pb.ReasonNotOwned:
			t.Errorf("%s: the code of %v", test.name, err)
		}
	}
}

// A secret that was pushed must stay owned: what is written is what is read, and
// its form never changes.
func TestTags(t *testing.T) {
	t.Parallel()

	plain, encoded := Backend{}, Backend{Encode: func(owner string) string { return "sha256:" + owner }}
	others := map[string]string{"team": "a", "managed-by": "another"}

	want := map[string]string{"team": "a", "managed-by": "external-secrets", "external-secrets-owner": "sha256:me"}
	if diff := cmp.Diff(want, encoded.Tags("me", others)); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}

	if others["managed-by"] != "another" {
		t.Error("the tags of the caller were changed")
	}

	for name, backend := range map[string]Backend{"plain": plain, "encoded": encoded} {
		mark := MarkOf(backend.Tags("me", nil))
		if mark != backend.Mark("me") || !backend.Owns(mark, "me") || backend.Owns(mark, "you") {
			t.Errorf("%s: the tags hold %v", name, mark)
		}
	}

	if mark := MarkOf(map[string]string{"managed-by": "terraform"}); mark != (Mark{}) {
		t.Errorf("the mark of another tool is %v", mark)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()

	got := Missing(map[string]string{"a": "1", "b": "2", "d": ""}, map[string]string{"a": "1", "b": "3", "c": "4", "d": "", "e": ""})
	if diff := cmp.Diff(map[string]string{"b": "3", "c": "4", "e": ""}, got); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}
