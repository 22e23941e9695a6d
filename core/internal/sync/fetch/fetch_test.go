package fetch

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/store"
)

// backend is a store that returns what a test says.
type backend struct {
	healthy bool
	found   map[string][]byte
	lost    error
}

func (b backend) Resolve(context.Context, store.Reference, string) (store.Snapshot, error) {
	return store.Snapshot{Healthy: b.healthy, Client: b}, nil
}

func (backend) Dependencies() []store.Dependency { return nil }

func (b backend) Find(context.Context, store.Find) (map[string][]byte, error) { return b.found, b.lost }

func (backend) Read(_ context.Context, reads []store.Read, _ []string) ([]store.Result, error) {
	results := make([]store.Result, len(reads))
	for i := range results {
		results[i].Err = &store.Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Item: true, Message: "it does not exist"}
	}

	return results, nil
}

// Something is taken from a target, or the target deleted, only on the word of
// a store that is Ready: also where that word is an empty answer.
func TestOnlyAHealthyStoreProvesAbsence(t *testing.T) {
	t.Parallel()

	find := &plan.Plan{Batches: []plan.Batch{{Finds: []store.Find{{Name: "x"}}}}, Entries: []plan.Entry{{Field: "spec.dataFrom[0].find", Find: true}}}
	read := &plan.Plan{Batches: []plan.Batch{{Reads: []store.Read{{Key: "x"}}}}, Entries: []plan.Entry{{Field: "spec.data[0]", SecretKey: "x"}}}

	for _, c := range []struct {
		why      string
		plan     plan.Plan
		deletion esv1.DeletionPolicy
		backend  backend
		err      string
	}{
		{"a find that finds nothing", *find, esv1.DeletionDelete, backend{healthy: true}, ""},
		{"and nothing through a store that is not Ready", *find, esv1.DeletionDelete, backend{}, "does not prove"},
		{"which must not empty a target either", *find, esv1.DeletionMerge, backend{}, "does not prove"},
		{"but harms none that stays", *find, esv1.DeletionRetain, backend{}, ""},
		{
			"a find during which a secret goes away says nothing of the others", *find, esv1.DeletionDelete,
			backend{healthy: true, lost: &store.Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Item: true, Message: "it went away"}}, "it went away",
		},
		{"a find that finds something", *find, esv1.DeletionDelete, backend{found: map[string][]byte{"x": nil}}, ""},
		{"a read of what is not there", *read, esv1.DeletionDelete, backend{healthy: true}, ""},
		{"and through a store that is not Ready", *read, esv1.DeletionDelete, backend{}, "does not prove"},
		{"a target that stays misses it", *read, esv1.DeletionRetain, backend{healthy: true}, "it does not exist"},
	} {
		c.plan.Target.Deletion = c.deletion

		fetcher := New(store.Resolvers{"": c.backend}, nil)

		stores, err := fetcher.Resolve(t.Context(), []store.Reference{{}}, "ns")
		if err != nil {
			t.Fatal(err)
		}

		_, _, err = fetcher.Open(&c.plan, stores, "ns").Fetch(t.Context(), nil, time.Time{})

		switch {
		case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: err = %v; want %q", c.why, err, c.err)
		}
	}
}
