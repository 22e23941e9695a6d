package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestParallel(t *testing.T) {
	var sum, under, most atomic.Int64

	err := parallel(t.Context(), 3, 100, func(_ context.Context, i int) error {
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer under.Add(-1)

		sum.Add(int64(i))

		return nil
	})
	if err != nil || sum.Load() != 99*100/2 {
		t.Errorf("the sum is %d, %v", sum.Load(), err)
	}

	if most.Load() > 3 {
		t.Errorf("%d were under way at once", most.Load())
	}

	if err := parallel(t.Context(), 3, 0, nil); err != nil {
		t.Errorf("nothing to do: %v", err)
	}

	failure := errors.New("failure")

	if err := parallel(t.Context(), 3, 100, func(_ context.Context, i int) error {
		if i == 7 {
			return failure
		}

		return nil
	}); !errors.Is(err, failure) {
		t.Errorf("one failed, and the error is %v", err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if err := parallel(ended, 3, 100, func(context.Context, int) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("the context had ended, and the error is %v", err)
	}
}

func TestLayout(t *testing.T) {
	l := &Load{Name: "sync", Objects: 7, Stores: 3}
	perNamespace := map[string]int{}
	names := map[types.NamespacedName]bool{}

	for i := range l.Objects {
		name := l.Object(i)
		perNamespace[name.Namespace]++
		names[name] = true

		if !l.Has(name) {
			t.Errorf("%s does not belong to its load", name)
		}
	}

	if len(names) != 7 || len(perNamespace) != 3 || perNamespace["sync-000"] != 3 || perNamespace["sync-001"] != 2 || perNamespace["sync-002"] != 2 {
		t.Errorf("the layout is %v", perNamespace)
	}

	for _, namespace := range []string{"", "sync", "sync-", "limit-000", "synchronous-000", "sync-000-x"} {
		if l.Has(types.NamespacedName{Namespace: namespace, Name: "app-00000"}) {
			t.Errorf("namespace %q belongs to the load", namespace)
		}
	}
}
