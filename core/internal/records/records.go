// Package records keeps what a controller remembers of each object besides the
// cache. A record is created when it is first asked for and dropped as a whole.
package records

import "sync"

// Map is the records of type R by key.
type Map[K comparable, R any] struct {
	create func(K) *R

	mu    sync.Mutex
	byKey map[K]*R
}

// New returns a Map whose records create creates.
func New[K comparable, R any](create func(K) *R) *Map[K, R] {
	return &Map[K, R]{create: create, byKey: map[K]*R{}}
}

// Of returns the record of a key, and creates it where there is none.
func (r *Map[K, R]) Of(key K) *R {
	r.mu.Lock()
	defer r.mu.Unlock()

	record, ok := r.byKey[key]
	if !ok {
		record = r.create(key)
		r.byKey[key] = record
	}

	return record
}

// Drop removes the record of a key and returns it; nil where there is none.
func (r *Map[K, R]) Drop(key K) *R {
	r.mu.Lock()
	defer r.mu.Unlock()

	record := r.byKey[key]
	delete(r.byKey, key)

	return record
}
