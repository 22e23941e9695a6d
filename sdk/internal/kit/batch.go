package kit

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// operatorBatch is how many reads the operator puts into one call at most.
const operatorBatch = 100

// maxUnlimited bounds what is tried where a provider names no limit.
const maxTriedBatch = 10_000

func batchTests() []Test {
	return []Test{
		{ID: "batch.ids-are-echoed", Why: "The operator assigns results to reads by id: an unknown id fails the sync.", Needs: reads(FixtureValue), Run: idsAreEchoed},
		{ID: "batch.order-does-not-matter", Why: "The reads of a batch are independent of each other.", Needs: reads(FixtureTwoSecrets), Run: orderDoesNotMatter},
		{ID: "batch.same-secret-twice", Why: "Two properties of one secret are two reads and need two results.", Needs: reads(FixtureValue), Run: sameSecretTwice},
		{ID: "batch.one-failure-is-alone", Why: "A missing key must not prevent the other reads of the batch from reaching their target.", Needs: reads(FixtureValue, FixtureMissingKey), Run: oneFailureIsAlone},
		{ID: "batch.ids-are-unique", Why: "Two results with the same id cannot be assigned to their reads.", Needs: reads(FixtureValue), Run: idsAreUnique},
		{ID: "batch.ids-are-needed", Why: "A result without an id cannot be assigned to its read.", Needs: reads(FixtureValue), Run: idsAreNeeded},
		{ID: "batch.of-the-largest-size", Why: "A provider must serve batches up to the limit that it reports.", Needs: reads(FixtureValue), Run: largestBatch},
		{ID: "batch.over-the-limit-is-refused", Why: "A caller that receives TOO_LARGE sends smaller batches; a caller that receives a partial answer deletes the missing secrets.", Needs: reads(FixtureValue), Run: batchOverTheLimit},
	}
}

// ask performs a batch and returns the results unchanged.
func (t *T) ask(ctx context.Context, reads ...*pb.SecretRead) []*pb.SecretResult {
	response, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: reads})
	t.must(fmt.Sprintf("a batch of %d reads", len(reads)), err)

	return response.GetResults()
}

// answered checks that each read has one result, and that no other result exists.
func (t *T) answered(reads []*pb.SecretRead, results []*pb.SecretResult) {
	if len(results) != len(reads) {
		t.Errorf("a batch of %d reads: it was answered with %d results", len(reads), len(results))
	}

	want, got := map[string]int{}, map[string]int{}
	for _, read := range reads {
		want[read.GetId()]++
	}

	for _, result := range results {
		if got[result.GetId()]++; want[result.GetId()] == 0 {
			t.Errorf("a batch of %d reads: a result has the id %.40q, which no read has", len(reads), result.GetId())
		}
	}

	for id := range want {
		if got[id] != 1 {
			t.Errorf("a batch of %d reads: %d results have the id %q", len(reads), got[id], id)
		}
	}
}

func idsAreEchoed(ctx context.Context, t *T) {
	key := t.target().values()[0].Key

	var reads []*pb.SecretRead
	for _, id := range []string{"0", "00", "A", "a", " a ", "spec.data[0]", "../../x", "naïve-ключ"} {
		reads = append(reads, valueOf(id, key))
	}

	t.answered(reads, t.ask(ctx, reads...))
}

func orderDoesNotMatter(ctx context.Context, t *T) {
	var reads []*pb.SecretRead

	want := map[string][]byte{}

	for i, secret := range t.target().values() {
		id := strconv.Itoa(i)
		reads = append(reads, valueOf(id, secret.Key))
		want[id], _ = secret.whole()
	}

	for _, order := range []string{"in order", "in reverse"} {
		results := t.get(ctx, reads...)
		for _, read := range reads {
			t.holds(fmt.Sprintf("secret %q in a batch %s", read.GetKey(), order), results[read.GetId()], want[read.GetId()])
		}

		slices.Reverse(reads)
	}
}

func sameSecretTwice(ctx context.Context, t *T) {
	secret := t.target().values()[0]
	whole, _ := secret.whole()
	reads := []*pb.SecretRead{valueOf("first", secret.Key), valueOf("second", secret.Key)}
	results := t.ask(ctx, reads...)

	t.answered(reads, results)

	for _, result := range results {
		t.holds(fmt.Sprintf("secret %q, read twice in one batch", secret.Key), result, whole)
	}
}

func oneFailureIsAlone(ctx context.Context, t *T) {
	secret := t.target().values()[0]
	whole, _ := secret.whole()

	for _, reads := range [][]*pb.SecretRead{
		{valueOf("good", secret.Key), valueOf("bad", t.target().Fixtures.MissingKey)},
		{valueOf("bad", t.target().Fixtures.MissingKey), valueOf("good", secret.Key)},
	} {
		results := t.get(ctx, reads...)
		t.holds(fmt.Sprintf("secret %q beside one that does not exist", secret.Key), results["good"], whole)

		if results["bad"].GetError() == nil {
			t.Errorf("a secret that does not exist, beside one that does: it has no error")
		}
	}
}

func idsAreUnique(ctx context.Context, t *T) {
	key := t.target().values()[0].Key
	_, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: []*pb.SecretRead{valueOf("0", key), valueOf("0", key)}})
	t.refused("a batch with one id twice", err, codes.InvalidArgument)
}

func idsAreNeeded(ctx context.Context, t *T) {
	_, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: []*pb.SecretRead{valueOf("", t.target().values()[0].Key)}})
	t.refused("a read without an id", err, codes.InvalidArgument)
}

// sized is a batch of so many reads of one secret: the one with the shortest
// value, so that the answer stays small.
func (t *T) sized(size int) (reads []*pb.SecretRead, whole []byte) {
	shortest := slices.MinFunc(t.target().values(), func(a, b Secret) int {
		left, _ := a.whole()
		right, _ := b.whole()

		return len(left) - len(right)
	})

	for i := range size {
		reads = append(reads, valueOf(strconv.Itoa(i), shortest.Key))
	}

	whole, _ = shortest.whole()

	return reads, whole
}

// limit of a batch; 0 where the provider names none.
func (t *T) limit() int { return int(t.run.info.GetLimits().GetMaxBatchSize()) }

func largestBatch(ctx context.Context, t *T) {
	size := t.limit()
	if size == 0 || size > maxTriedBatch {
		size = operatorBatch
	}

	reads, whole := t.sized(size)
	results := t.ask(ctx, reads...)
	t.answered(reads, results)

	for _, result := range results {
		if before := len(t.failures); before == 0 {
			t.holds(fmt.Sprintf("read %q of a batch of %d", result.GetId(), size), result, whole)
		}
	}
}

func batchOverTheLimit(ctx context.Context, t *T) {
	size := t.limit()
	if size == 0 || size > maxTriedBatch {
		t.Skip("the provider names no limit, or one above %d", maxTriedBatch)
	}

	reads, _ := t.sized(size + 1)
	what := fmt.Sprintf("a batch of %d reads, one more than limits.max_batch_size", size+1)

	_, err := t.store().GetSecrets(ctx, &pb.GetSecretsRequest{Context: t.call(), Reads: reads})
	t.refused(what, err, codes.InvalidArgument, codes.ResourceExhausted)
	t.because(what, err, pb.ReasonTooLarge)
}

func revisionTests() []Test {
	return []Test{
		{ID: "revision.known", Why: "An unchanged secret need not be transferred again and must not appear to have changed.", Needs: reads(FixtureValue), Run: knownRevision},
		{ID: "revision.unknown", Why: "NOT_MODIFIED for a revision that is not the current one keeps an outdated value in the target.", Needs: reads(FixtureValue), Run: unknownRevision},
		{
			ID: "revision.changes-with-the-value", Why: "Equal revisions mean equal values.", Run: changedRevision,
			Needs: Needs{Capabilities: []pb.Capability{pb.Capability_CAPABILITY_READ, pb.Capability_CAPABILITY_PUSH}, Writes: true, Fixtures: []Fixture{FixtureWrite}},
		},
	}
}

func knownRevision(ctx context.Context, t *T) {
	exercised := false

	for _, secret := range t.target().values() {
		revision := t.single(ctx, valueOf("0", secret.Key)).GetRevision()
		if revision == "" {
			continue
		}

		exercised = true
		whole, _ := secret.whole()
		read := valueOf("0", secret.Key)
		read.KnownRevision = revision
		result := t.single(ctx, read)

		if result.GetNotModified() == nil {
			t.holds(fmt.Sprintf("secret %q, whose revision is known", secret.Key), result, whole)
		}

		if result.GetRevision() != revision {
			t.Errorf("secret %q, whose revision is known: the answer has another revision, and nothing has changed", secret.Key)
		}
	}

	if !exercised {
		t.Skip("the provider gives no revisions")
	}
}

func unknownRevision(ctx context.Context, t *T) {
	for _, secret := range t.target().values() {
		whole, _ := secret.whole()
		read := valueOf("0", secret.Key)
		read.KnownRevision = "conformance-was-never-a-revision"
		t.holds(fmt.Sprintf("secret %q, of which another revision is known", secret.Key), t.single(ctx, read), whole)
	}
}

func changedRevision(ctx context.Context, t *T) {
	key := t.key("revision")
	first, second := t.whole(), t.whole()

	t.push(ctx, key, first)

	revision := t.single(ctx, valueOf("0", key)).GetRevision()
	if revision == "" {
		t.Skip("the provider gives no revisions")
	}

	t.push(ctx, key, second)

	read := valueOf("0", key)
	read.KnownRevision = revision
	t.holds("a secret that has changed since the revision that is known", t.single(ctx, read), second)
}
