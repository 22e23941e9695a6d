package idempotency

import (
	"container/list"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// MaxResults is how many results are kept. The oldest is dropped first.
	MaxResults = 1024
	// MaxBytes is how many bytes the results that are kept have together.
	MaxBytes = 16 << 20
	// maxSpent is how many keys are remembered whose result is not kept any more.
	maxSpent = 16 << 10
	// maxRunning bounds the generations that run at the same time.
	maxRunning = 256
	// runTimeout bounds a generation, whose caller may have given up.
	runTimeout = 2 * time.Minute
)

// Key identifies one intent to generate.
type Key [sha256.Size]byte

// KeyOf returns the key of an idempotency key for the config and the namespaces
// of a call.
func KeyOf(call *pb.CallContext, idempotencyKey string) Key {
	config := call.GetConfig()
	hash := sha256.New()

	for _, part := range []string{
		config.GetApiVersion(), config.GetKind(), config.GetNamespace(), config.GetName(), config.GetUid(),
		call.GetSourceNamespace(), call.GetAuthenticationNamespace(), idempotencyKey,
	} {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}

	return Key(hash.Sum(nil))
}

// Results of generations. Safe for concurrent use.
type Results struct {
	mu      sync.Mutex
	results map[Key]*result
	running int
	// kept are the keys of results that are complete, oldest first, and bytes is
	// their size.
	kept  *list.List
	bytes int
	// spent are keys whose result was dropped, in spentOrder, oldest first.
	spent      map[Key]bool
	spentOrder *list.List
}

// result of one generation. Its fields are set before done is closed.
type result struct {
	done     chan struct{}
	response *pb.GenerateResponse
	err      error
	size     int
	element  *list.Element
}

// New returns no results.
func New() *Results {
	return &Results{results: map[Key]*result{}, kept: list.New(), spent: map[Key]bool{}, spentOrder: list.New()}
}

// Do returns the result of a key: the one that is kept, that of a generation with
// the same key that is running, or that of generate. An error is not kept, so that
// the next call with the key generates again. A key whose result was dropped
// fails with provider.ResultLost.
//
// The context of generate ends after two minutes, not with ctx: what it has
// created is kept for the repetition of a call whose caller gave up. generate must
// not panic.
func (r *Results) Do(ctx context.Context, key Key, generate func(context.Context) (*pb.GenerateResponse, error)) (*pb.GenerateResponse, error) {
	running, first, err := r.start(key)
	if err != nil {
		return nil, err
	}

	if first {
		go r.run(context.WithoutCancel(ctx), key, running, generate)
	}

	select {
	case <-running.done:
		return running.response, running.err
	case <-ctx.Done():
		return nil, provider.AsError(ctx.Err())
	}
}

// State returns the state of a result that is kept.
func (r *Results) State(key Key) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()

	if kept := r.results[key]; kept != nil && kept.element != nil {
		return kept.response.GetState()
	}

	return nil
}

// Running reports whether a generation with a key is running: its credential is not
// known yet.
func (r *Results) Running(key Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	running := r.results[key]

	return running != nil && running.element == nil
}

// Drop removes the result of a key, because its credential is revoked. Later calls
// of Do with the key fail.
func (r *Results) Drop(key Key) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if kept := r.results[key]; kept != nil && kept.element != nil {
		r.dropLocked(key, kept)

		return
	}

	r.spendLocked(key)
}

// start returns the result of a key, which may be complete, and whether the
// caller has to run its generation.
func (r *Results) start(key Key) (_ *result, first bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if existing, ok := r.results[key]; ok {
		return existing, false, nil
	}

	switch {
	case r.spent[key]:
		return nil, false, provider.ResultLost("a credential was generated with this idempotency key, and its value is not kept any more")
	case r.running >= maxRunning:
		return nil, false, provider.Throttled(time.Second, "%d credentials are being generated already", maxRunning)
	}

	started := &result{done: make(chan struct{})}
	r.results[key] = started
	r.running++

	return started, true, nil
}

func (r *Results) run(ctx context.Context, key Key, running *result, generate func(context.Context) (*pb.GenerateResponse, error)) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()

	response, err := generate(ctx)

	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(running.done)

	r.running--
	running.response, running.err = response, err

	if err != nil {
		delete(r.results, key)

		return
	}

	running.size = proto.Size(response)
	running.element = r.kept.PushBack(key)
	r.bytes += running.size

	for r.kept.Len() > MaxResults || r.bytes > MaxBytes {
		oldest, _ := r.kept.Front().Value.(Key)
		r.dropLocked(oldest, r.results[oldest])
	}
}

func (r *Results) dropLocked(key Key, kept *result) {
	r.kept.Remove(kept.element)
	r.bytes -= kept.size
	delete(r.results, key)
	r.spendLocked(key)
}

func (r *Results) spendLocked(key Key) {
	if r.spent[key] {
		return
	}

	if r.spentOrder.Len() == maxSpent {
		oldest, _ := r.spentOrder.Remove(r.spentOrder.Front()).(Key)
		delete(r.spent, oldest)
	}

	r.spent[key] = true
	r.spentOrder.PushBack(key)
}
