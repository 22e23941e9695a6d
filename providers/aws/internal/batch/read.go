package batch

import (
	"maps"
	"slices"
	"sync"
)

// InFlight is the number of concurrent batches.
const InFlight = 4

// Read calls read with batches of at most size keys, InFlight at a time, and
// returns all results.
func Read[K comparable, V any](keys []K, size int, read func([]K) map[K]V) map[K]V {
	var (
		mu   sync.Mutex
		wait sync.WaitGroup

		all  = map[K]V{}
		free = make(chan struct{}, InFlight)
	)

	for keys := range slices.Chunk(keys, size) {
		free <- struct{}{}

		wait.Go(func() {
			defer func() { <-free }()

			answered := read(keys)

			mu.Lock()
			defer mu.Unlock()

			maps.Copy(all, answered)
		})
	}

	wait.Wait()

	return all
}
