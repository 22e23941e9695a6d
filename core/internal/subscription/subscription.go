// Package subscription runs watches on demand: one per key, as long as the key
// has subscribers. What is watched, and how, is the caller's business.
package subscription

import (
	"context"
	"slices"
	"sync"
)

// Watches runs one watch per key that has subscribers.
type Watches[K comparable, S, W any] struct {
	options Options[K, S, W]

	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	byKey   map[K]*entry[K, S, W]
	// ending are watches without subscribers that have not returned yet.
	ending map[K]chan struct{}
}

// Options of Watches.
type Options[K comparable, S, W any] struct {
	// New returns the state of a watch that is about to run. It must not block,
	// nor call a method of the Watches.
	New func(key K) W
	// Run watches until ctx ends, which is when the last subscriber leaves. Runs
	// of one key never overlap.
	Run func(ctx context.Context, key K, watch W)
	// Max bounds the keys that are watched at the same time; 0 means no bound.
	// Subscriptions to keys beyond it have no effect.
	Max int
}

type entry[K comparable, S, W any] struct {
	watch       W
	cancel      context.CancelFunc
	done        chan struct{}
	subscribers map[*Subscription[K, S, W]]bool
}

// New returns Watches of nothing.
func New[K comparable, S, W any](options Options[K, S, W]) *Watches[K, S, W] {
	return &Watches[K, S, W]{options: options, byKey: map[K]*entry[K, S, W]{}, ending: map[K]chan struct{}{}}
}

// Subscription is what one subscriber has subscribed to.
type Subscription[K comparable, S, W any] struct {
	watches    *Watches[K, S, W]
	subscriber S
	keys       []K // guarded by watches.mu
}

// Subscribe returns a subscription to no key yet.
func (w *Watches[K, S, W]) Subscribe(subscriber S) *Subscription[K, S, W] {
	return &Subscription[K, S, W]{watches: w, subscriber: subscriber}
}

// Replace replaces the keys of the subscription: watches of new keys start, and
// watches that have no subscriber left end.
func (s *Subscription[K, S, W]) Replace(keys ...K) {
	w := s.watches

	w.mu.Lock()
	defer w.mu.Unlock()

	if slices.Equal(s.keys, keys) {
		return
	}

	former := s.keys
	s.keys = nil

	for _, key := range keys {
		if slices.Contains(s.keys, key) {
			continue
		}

		if e := w.entry(key); e != nil {
			e.subscribers[s] = true
			s.keys = append(s.keys, key)
		}
	}

	for _, key := range former {
		if !slices.Contains(s.keys, key) {
			w.leave(key, s)
		}
	}
}

// Close ends the subscription to all keys.
func (s *Subscription[K, S, W]) Close() { s.Replace() }

// Watch returns the state of a key's watch; ok is false where the key has no
// subscribers.
func (w *Watches[K, S, W]) Watch(key K) (watch W, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	e, ok := w.byKey[key]
	if ok {
		watch = e.watch
	}

	return watch, ok
}

// Subscribers of a key, in no particular order.
func (w *Watches[K, S, W]) Subscribers(key K) []S {
	w.mu.Lock()
	defer w.mu.Unlock()

	e, ok := w.byKey[key]
	if !ok {
		return nil
	}

	subscribers := make([]S, 0, len(e.subscribers))
	for s := range e.subscribers {
		subscribers = append(subscribers, s.subscriber)
	}

	return subscribers
}

// Len returns the number of keys that are watched.
func (w *Watches[K, S, W]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return len(w.byKey)
}

// Stop ends all watches and waits until they have returned. Later subscriptions
// have no effect.
func (w *Watches[K, S, W]) Stop() {
	w.mu.Lock()
	w.stopped = true

	for _, e := range w.byKey {
		e.cancel()
	}
	w.mu.Unlock()

	w.running.Wait()
}

// entry returns the watch of a key, and starts it where it is new; nil where
// none may be started.
func (w *Watches[K, S, W]) entry(key K) *entry[K, S, W] {
	if e, ok := w.byKey[key]; ok {
		return e
	}

	if w.stopped || (w.options.Max > 0 && len(w.byKey) >= w.options.Max) {
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // kept in the entry, which calls it when it ends
	e := &entry[K, S, W]{
		watch: w.options.New(key), cancel: cancel, done: make(chan struct{}), subscribers: map[*Subscription[K, S, W]]bool{},
	}
	w.byKey[key] = e
	former := w.ending[key]

	w.running.Go(func() {
		defer w.ended(key, e)

		if former != nil {
			<-former
		}

		if ctx.Err() == nil {
			w.options.Run(ctx, key, e.watch)
		}
	})

	return e
}

// leave takes a subscriber from a key.
func (w *Watches[K, S, W]) leave(key K, s *Subscription[K, S, W]) {
	e, ok := w.byKey[key]
	if !ok {
		return
	}

	delete(e.subscribers, s)

	if len(e.subscribers) > 0 {
		return
	}

	e.cancel()
	delete(w.byKey, key)
	w.ending[key] = e.done
}

func (w *Watches[K, S, W]) ended(key K, e *entry[K, S, W]) {
	w.mu.Lock()
	defer w.mu.Unlock()

	e.cancel()
	close(e.done)

	if w.ending[key] == e.done {
		delete(w.ending, key)
	}
}
