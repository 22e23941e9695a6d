package fetch

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/internal/store/source"
	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// backend is a store with what a test says.
type backend struct {
	source.Opener
	source.Source

	healthy bool
	found   map[string][]byte
	lost    error
}

func (b backend) Open(context.Context, plan.Store, string) (source.Source, error) { return b, nil }

func (b backend) Healthy() bool { return b.healthy }

func (b backend) Find(context.Context, plan.Find) (map[string][]byte, error) { return b.found, b.lost }

func (backend) Read(_ context.Context, reads []plan.Read, _ []string, _ time.Time) ([]source.Result, error) {
	results := make([]source.Result, len(reads))
	for i := range results {
		results[i].Err = &providerclient.Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Item: true, Message: "it does not exist"}
	}

	return results, nil
}

// Something is taken from a target, or the target deleted, only on the word of
// a store that is Ready: also where that word is an empty answer.
func TestOnlyAHealthyStoreProvesAbsence(t *testing.T) {
	t.Parallel()

	find := &plan.Plan{Batches: []plan.Batch{{Finds: []plan.Find{{Name: "x"}}}}, Entries: []plan.Entry{{Field: "spec.dataFrom[0].find", Find: true}}}
	read := &plan.Plan{Batches: []plan.Batch{{Reads: []plan.Read{{Key: "x"}}}}, Entries: []plan.Entry{{Field: "spec.data[0]", SecretKey: "x"}}}

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
			backend{healthy: true, lost: &providerclient.Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Item: true, Message: "it went away"}}, "it went away",
		},
		{"a find that finds something", *find, esv1.DeletionDelete, backend{found: map[string][]byte{"x": nil}}, ""},
		{"a read of what is not there", *read, esv1.DeletionDelete, backend{healthy: true}, ""},
		{"and through a store that is not Ready", *read, esv1.DeletionDelete, backend{}, "does not prove"},
		{"a target that stays misses it", *read, esv1.DeletionRetain, backend{healthy: true}, "it does not exist"},
	} {
		c.plan.Target.Deletion = c.deletion

		_, _, err := Open(t.Context(), source.Registry{"": c.backend}, &c.plan, "ns").Fetch(t.Context(), nil, time.Time{})

		switch {
		case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: err = %v; want %q", c.why, err, c.err)
		}
	}
}
