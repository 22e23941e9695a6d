package load

import (
	"context"
	"sync"
	"sync/atomic"
)

// workers is how many requests of this package are under way at once: more than
// a small control plane can use.
const workers = 32

// parallel calls do for 0 to n-1, with several workers, until one fails. It
// gives the first error.
func parallel(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var (
		next atomic.Int64
		wait sync.WaitGroup
	)

	for range min(workers, n) {
		wait.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}

				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}

	wait.Wait()

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return nil
}
