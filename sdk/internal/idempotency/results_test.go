package idempotency

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// credential with a value of so many bytes.
func credential(size int) func(context.Context) (*pb.GenerateResponse, error) {
	return func(context.Context) (*pb.GenerateResponse, error) {
		return &pb.GenerateResponse{Entries: []*pb.SecretEntry{{Key: "k", Value: make([]byte, size)}}}, nil
	}
}

func key(text string) Key { return KeyOf(&pb.CallContext{}, text) }

// do generates, and reports whether it did.
func do(t *testing.T, r *Results, text string, size int) (generated bool, err error) {
	t.Helper()

	_, err = r.Do(t.Context(), key(text), func(ctx context.Context) (*pb.GenerateResponse, error) {
		generated = true

		return credential(size)(ctx)
	})

	return generated, err
}

// Memory is bounded by the number of results and by their bytes; a key whose
// result was dropped generates no second credential.
func TestBounds(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, why string
		results   int
		size      int
	}{
		{name: "number", why: "small results are bounded by their number", results: MaxResults, size: 1},
		{name: "bytes", why: "large results are bounded by their bytes", results: 15, size: 1 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			r := New()

			for i := range test.results + 1 {
				if generated, err := do(t, r, strconv.Itoa(i), test.size); !generated || err != nil {
					t.Fatalf("generation %d: %t, %v", i, generated, err)
				}
			}

			if generated, err := do(t, r, "0", test.size); generated || provider.AsError(err).Reason != pb.ReasonResultLost {
				t.Errorf("%s: the oldest was generated again: %t, %v", test.why, generated, err)
			}

			if generated, err := do(t, r, strconv.Itoa(test.results), test.size); generated || err != nil {
				t.Errorf("%s: the newest is not kept: %t, %v", test.why, generated, err)
			}

			if r.kept.Len() > test.results || len(r.results) != r.kept.Len() || r.bytes > MaxBytes {
				t.Errorf("%s: %d results with %d bytes are kept", test.why, r.kept.Len(), r.bytes)
			}
		})
	}
}

// The keys without a result are bounded too; the oldest is forgotten.
func TestSpentKeysAreBounded(t *testing.T) {
	t.Parallel()

	r := New()
	for i := range maxSpent + 1 {
		r.Drop(key(strconv.Itoa(i)))
		r.Drop(key(strconv.Itoa(i)))
	}

	if len(r.spent) != maxSpent || r.spentOrder.Len() != maxSpent {
		t.Errorf("%d keys are remembered", len(r.spent))
	}

	if generated, err := do(t, r, "0", 1); !generated || err != nil {
		t.Errorf("the oldest key: %t, %v", generated, err)
	}
}

// Callers that give up must not leave any number of generations behind.
func TestRunningIsBounded(t *testing.T) {
	t.Parallel()

	r, proceed := New(), make(chan struct{})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()

	for i := range maxRunning {
		if _, err := r.Do(cancelled, key(strconv.Itoa(i)), func(context.Context) (*pb.GenerateResponse, error) {
			<-proceed

			return nil, errors.New("failed")
		}); err == nil {
			t.Fatal("a call outlives its caller")
		}
	}

	if generated, err := do(t, r, "more", 1); generated || provider.AsError(err).Reason != pb.ReasonThrottled {
		t.Errorf("one more: %t, %v", generated, err)
	}

	close(proceed)
}

// Calls for different configs and namespaces share no result, nor do keys that
// are the same text when they are joined.
func TestKeys(t *testing.T) {
	t.Parallel()

	keys := map[Key]string{}

	for name, call := range map[string]*pb.CallContext{
		"none":           {},
		"config":         {Config: &pb.ConfigReference{Name: "a", Uid: "b"}},
		"joined":         {Config: &pb.ConfigReference{Name: "ab"}},
		"kind":           {Config: &pb.ConfigReference{Kind: "ab"}},
		"namespace":      {Config: &pb.ConfigReference{Namespace: "ab"}},
		"source":         {SourceNamespace: "ab"},
		"authentication": {AuthenticationNamespace: "ab"},
	} {
		if other, taken := keys[KeyOf(call, "k")]; taken {
			t.Errorf("%s and %s share a key", name, other)
		}

		keys[KeyOf(call, "k")] = name
	}
}

// A cleanup has to wait for a generation that runs on behalf of a caller that gave
// up: its credential does not exist yet.
func TestRunning(t *testing.T) {
	t.Parallel()

	r, started, proceed, done := New(), make(chan struct{}), make(chan struct{}), make(chan struct{})

	go func() {
		defer close(done)

		_, _ = r.Do(context.Background(), key("a"), func(ctx context.Context) (*pb.GenerateResponse, error) {
			close(started)
			<-proceed

			return credential(1)(ctx)
		})
	}()

	<-started

	if !r.Running(key("a")) || r.Running(key("b")) {
		t.Error("the generation that runs is not reported, or another one is")
	}

	close(proceed)
	<-done

	if r.Running(key("a")) {
		t.Error("a generation that has ended is still running")
	}
}
