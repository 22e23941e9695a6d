package batch

import (
	"sync/atomic"
	"testing"
)

func TestRead(t *testing.T) {
	keys := make([]int, 95)
	for i := range keys {
		keys[i] = i
	}

	var now, most atomic.Int32

	got := Read(keys, 10, func(batch []int) map[int]int {
		n := now.Add(1)
		defer now.Add(-1)

		for {
			seen := most.Load()
			if n <= seen || most.CompareAndSwap(seen, n) {
				break
			}
		}

		if len(batch) > 10 {
			t.Errorf("a batch of %d", len(batch))
		}

		doubled := map[int]int{}
		for _, key := range batch {
			doubled[key] = 2 * key
		}

		return doubled
	})

	for _, key := range keys {
		if got[key] != 2*key {
			t.Errorf("%d answers %d", key, got[key])
		}
	}

	if len(got) != len(keys) || most.Load() > InFlight {
		t.Errorf("%d answers, %d batches at a time", len(got), most.Load())
	}
}
