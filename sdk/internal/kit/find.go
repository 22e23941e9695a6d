package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// changeTimeout is how long a change may take to be reported.
const changeTimeout = 10 * time.Second

func finds(fixtures ...Fixture) Needs {
	return Needs{Capabilities: []pb.Capability{pb.Capability_CAPABILITY_FIND}, Fixtures: fixtures}
}

func findTests() []Test {
	return []Test{
		{ID: "find.all-that-matches", Why: "A secret that is missing from the result appears to have been deleted.", Needs: finds(FixtureFind), Run: findAll},
		{ID: "find.each-once", Why: "With two results for one key, the value in the target would be arbitrary: the operator rejects both.", Needs: finds(FixtureFind), Run: findOnce},
		{ID: "find.values", Why: "The operator uses the values of a find as they are and does not read them again by key.", Needs: finds(FixtureFind, FixtureValue), Run: findValues},
		{ID: "find.name-regexp", Why: "The expression narrows the search that path and tags define.", Needs: finds(FixtureFind), Run: findRegexp},
		{ID: "find.nothing", Why: "An empty result is valid and not an error.", Needs: finds(), Run: findNothing},
		{ID: "find.regexp-is-checked", Why: "An invalid expression must not look like a backend without secrets.", Needs: finds(), Run: findBadRegexp},
		{ID: "find.of-the-largest-size", Why: "A result with exactly max_results secrets is not too large.", Needs: finds(FixtureFind), Run: findLargest},
		{ID: "find.over-max-results-is-refused", Why: "A secret that is missing from a truncated result appears to have been deleted.", Needs: finds(FixtureFindTwo), Run: findOver},
		{ID: "find.can-be-cancelled", Why: "A caller may cancel a find early, and the provider must keep serving.", Needs: finds(FixtureFind), Run: findCancelled},
	}
}

// collect reads a find to its end.
func (t *T) collect(ctx context.Context, request *pb.FindSecretsRequest) ([]*pb.SecretEntry, error) {
	stream, err := t.store().FindSecrets(ctx, request)
	if err != nil {
		return nil, err
	}

	var found []*pb.SecretEntry

	for {
		message, err := stream.Recv()

		switch {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		}

		found = append(found, message.GetEntries()...)
	}
}

// request of a search.
func (t *T) request(search Search) *pb.FindSecretsRequest {
	return &pb.FindSecretsRequest{Context: t.call(), Path: search.Path, NameRegexp: search.NameRegexp, Tags: search.Tags}
}

// find performs a search of the fixtures.
func (t *T) find(ctx context.Context, i int, search Search) (what string, found []*pb.SecretEntry) {
	what = fmt.Sprintf("fixtures.find[%d]", i)

	found, err := t.collect(ctx, t.request(search))
	t.must(what, err)

	return what, found
}

func keysOf(found []*pb.SecretEntry) []string {
	keys := make([]string, 0, len(found))
	for _, entry := range found {
		keys = append(keys, entry.GetKey())
	}

	slices.Sort(keys)

	return keys
}

// same checks which keys were found, however often.
func (t *T) same(what string, found []*pb.SecretEntry, want []string) {
	got := slices.Compact(keysOf(found))

	for _, key := range want {
		if !slices.Contains(got, key) {
			t.Errorf("%s: %q was not found", what, key)
		}
	}

	for _, key := range got {
		if !slices.Contains(want, key) {
			t.Errorf("%s: %q was found, and is not listed", what, key)
		}
	}
}

func findAll(ctx context.Context, t *T) {
	for i, search := range t.target().Fixtures.Find {
		what, found := t.find(ctx, i, search)
		t.same(what, found, search.Keys)
	}
}

func findOnce(ctx context.Context, t *T) {
	for i, search := range t.target().Fixtures.Find {
		what, found := t.find(ctx, i, search)

		keys := keysOf(found)
		if n := len(keys) - len(slices.Compact(keys)); n > 0 {
			t.Errorf("%s: %d secrets were found more than once", what, n)
		}
	}
}

func findValues(ctx context.Context, t *T) {
	compared := 0

	for i, search := range t.target().Fixtures.Find {
		what, found := t.find(ctx, i, search)

		for _, entry := range found {
			for _, secret := range t.target().values() {
				if secret.Key != entry.GetKey() {
					continue
				}

				compared++

				if whole, _ := secret.whole(); !bytes.Equal(whole, entry.GetValue()) {
					t.Errorf("%s: the value of %q is not that of fixtures.secrets", what, secret.Key)
				}
			}
		}
	}

	if compared == 0 {
		t.NotExercised("no key of fixtures.find has a value in fixtures.secrets")
	}
}

func findRegexp(ctx context.Context, t *T) {
	for i, search := range t.target().Fixtures.Find {
		key := slices.Min(search.Keys)
		search.NameRegexp = "^" + regexp.QuoteMeta(key) + "$"

		found, err := t.collect(ctx, t.request(search))
		t.must("FindSecrets by name_regexp", err)
		t.same(fmt.Sprintf("fixtures.find[%d] with a name_regexp that only %q matches", i, key), found, []string{key})
	}
}

func findNothing(ctx context.Context, t *T) {
	found, err := t.collect(ctx, t.request(Search{Path: t.path(), NameRegexp: "^conformance-matches-nothing$"}))
	t.must("FindSecrets with a name_regexp that nothing matches", err)

	if len(found) > 0 {
		t.Errorf("FindSecrets with a name_regexp that nothing matches: %d secrets were found", len(found))
	}
}

// path is one in which a search makes sense to the backend.
func (t *T) path() *string {
	for _, search := range t.target().Fixtures.Find {
		return search.Path
	}

	return nil
}

func findBadRegexp(ctx context.Context, t *T) {
	for _, expression := range []string{"(", "(?=lookahead)"} {
		_, err := t.collect(ctx, t.request(Search{Path: t.path(), NameRegexp: expression}))
		t.refused(fmt.Sprintf("FindSecrets with the name_regexp %q, which is not RE2", expression), err, codes.InvalidArgument)
	}
}

func findLargest(ctx context.Context, t *T) {
	for i, search := range t.target().Fixtures.Find {
		request := t.request(search)
		request.MaxResults = uint32(len(search.Keys)) //nolint:gosec // a list in a file

		_, err := t.collect(ctx, request)
		if err != nil {
			t.Errorf("fixtures.find[%d] with max_results %d, which is what it finds: it failed with %s", i, request.GetMaxResults(), described(err))
		}
	}
}

func findOver(ctx context.Context, t *T) {
	for i, search := range t.target().Fixtures.Find {
		if len(search.Keys) < 2 {
			continue
		}

		request := t.request(search)
		request.MaxResults = uint32(len(search.Keys)) - 1 //nolint:gosec // a list in a file

		_, err := t.collect(ctx, request)
		what := fmt.Sprintf("fixtures.find[%d] with max_results %d, one less than it finds", i, request.GetMaxResults())
		t.refused(what, err, codes.ResourceExhausted)
		t.because(what, err, pb.ReasonTooLarge)
	}
}

func findCancelled(ctx context.Context, t *T) {
	search := t.target().Fixtures.Find[0]

	for range 20 {
		cancelled, cancel := context.WithCancel(ctx)

		stream, err := t.store().FindSecrets(cancelled, t.request(search))
		if err == nil {
			_, err = stream.Recv()
		}

		cancel()

		if err != nil && !errors.Is(err, io.EOF) {
			t.must("FindSecrets", err)
		}
	}

	found, err := t.collect(ctx, t.request(search))
	t.must("FindSecrets after twenty that were cancelled", err)
	t.same("fixtures.find[0] after twenty that were cancelled", found, search.Keys)
}

// watchTests test the notifications of changes.
func watchTests() []Test {
	watch := []pb.Capability{pb.Capability_CAPABILITY_WATCH}

	return []Test{
		{ID: "watch.is-established", Why: "Changes before the first answer are lost, so the caller must know when the watch is established.", Needs: Needs{Capabilities: watch}, Run: func(ctx context.Context, t *T) {
			_, first := t.watch(ctx)
			if len(first.GetKeys()) > 0 {
				t.Errorf("Watch: its first answer names %d keys, and should name none", len(first.GetKeys()))
			}
		}},
		{
			ID: "watch.reports-changes", Why: "A change that is not reported is only seen after the refresh interval.",
			Needs: Needs{Capabilities: append(watch, pb.Capability_CAPABILITY_PUSH), Writes: true, Fixtures: []Fixture{FixtureWrite}},
			Run: func(ctx context.Context, t *T) {
				ctx, end := context.WithCancel(ctx)
				defer end()

				key := t.key("watch")
				stream, _ := t.watch(ctx, key)
				t.push(ctx, key, t.whole())

				// A watch ends with its context: this one has its own.
				late := time.AfterFunc(changeTimeout, end)
				defer late.Stop()

				change, err := stream.Recv()
				t.must("Watch of a key that changes", err)

				if !change.GetResync() && !slices.Contains(change.GetKeys(), key) {
					t.Errorf("Watch of a key that changes: the answer does not name it, nor asks for a resync (%s)", strings.Join(change.GetKeys(), ", "))
				}
			},
		},
	}
}

// watch opens a watch and waits for its first answer.
func (t *T) watch(ctx context.Context, keys ...string) (interface {
	Recv() (*pb.WatchResponse, error)
}, *pb.WatchResponse) {
	stream, err := t.store().Watch(ctx, &pb.WatchRequest{Context: t.call(), Keys: keys})
	t.must("Watch", err)

	first, err := stream.Recv()
	t.must("the first answer of Watch", err)

	return stream, first
}
