package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"

	"github.com/external-secrets/eso/core/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// fakeStore is a store whose events the test sends.
type fakeStore struct {
	name string
	// opened receives the event channel of each watch that begins; the watch ends
	// when its channel is closed.
	opened chan chan store.Event
	err    error
}

func newStore(name string) *fakeStore {
	return &fakeStore{name: name, opened: make(chan chan store.Event, 10)}
}

func (s *fakeStore) Name() string { return s.name }

func (s *fakeStore) Watch(ctx context.Context, report func(store.Event) error) error {
	events := make(chan store.Event)
	s.opened <- events

	for {
		select {
		case n, ok := <-events:
			if !ok {
				return s.err
			}

			if err := report(n); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *fakeStore) source(keys ...string) Source {
	return Source{Name: s.name, Keys: keys, Open: func(context.Context) (store.Watcher, error) { return s, nil }}
}

func (s *fakeStore) next(t *testing.T) chan store.Event {
	t.Helper()

	select {
	case events := <-s.opened:
		return events
	case <-time.After(patience):
		t.Fatal("the store is not watched")

		return nil
	}
}

// world consists of Watches, their subscribers, and the names that were reported.
type world struct {
	*Watches

	subscribers map[string]*Subscriber

	mu       sync.Mutex
	reported []string
}

// of returns the subscriber of a name.
func (w *world) of(name string) *Subscriber {
	if w.subscribers[name] == nil {
		w.subscribers[name] = w.Subscribe(types.NamespacedName{Namespace: "ns", Name: name})
	}

	return w.subscribers[name]
}

func newWorld(t *testing.T) *world {
	t.Helper()

	w := &world{subscribers: map[string]*Subscriber{}}
	w.Watches = New(func(names ...types.NamespacedName) {
		w.mu.Lock()
		defer w.mu.Unlock()

		for _, name := range names {
			w.reported = append(w.reported, name.Name)
		}
	})
	w.pauses = pauses{shortest: time.Millisecond, longest: 10 * time.Millisecond, refused: time.Hour}

	t.Cleanup(w.Stop)

	return w
}

// take returns the names that were reported since the last call.
func (w *world) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	reported := w.reported
	w.reported = nil
	slices.Sort(reported)

	return reported
}

// send sends an event, and returns when it was handled: a second event, which has
// no keys and concerns no subscriber, is received only then.
func send(events chan store.Event, n store.Event) {
	events <- n
	events <- store.Event{}
}

func TestReportsSubscribersOfAKey(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	w.of("a").Replace(s.source("one", "two"))
	w.of("b").Replace(s.source("two"))
	w.of("c").Replace(s.source("three"))
	w.of("d").Replace(Source{Name: "s", Open: s.source().Open})

	events := s.next(t)
	send(events, store.Event{Established: true})

	if reported := w.take(); len(reported) > 0 {
		t.Errorf("subscribers that have not read are reported when the watch is established: %v", reported)
	}

	send(events, store.Event{Keys: []string{"other"}})

	// The finder reads any key.
	if reported := w.take(); !slices.Equal(reported, []string{"d"}) {
		t.Errorf("reported for a key that only a find returns: %v", reported)
	}

	send(events, store.Event{Keys: []string{"two"}})

	if reported := w.take(); !slices.Equal(reported, []string{"a", "b", "d"}) {
		t.Errorf("reported: %v", reported)
	}

	if !w.of("a").Changed() || w.of("c").Changed() {
		t.Error("the wrong subscriber is marked as changed")
	}

	mark := w.of("a").Reading()

	if mark.Reported.IsZero() {
		t.Error("a read has no time of the reported change")
	}

	if !w.of("a").Changed() {
		t.Error("a read that may fail removes the mark")
	}

	w.of("a").Synced(mark)

	if w.of("a").Changed() {
		t.Error("the mark remains after the sync")
	}

	mark = w.of("a").Reading()

	if !mark.Reported.IsZero() {
		t.Error("a read has the time of a change that was read before")
	}

	send(events, store.Event{Keys: []string{"one"}})
	w.take()
	w.of("a").Synced(mark)

	if !w.of("a").Changed() {
		t.Error("a change that was reported during a read is lost")
	}

	if len(s.opened) > 0 {
		t.Error("the store is watched twice")
	}

	send(events, store.Event{Resync: true})

	if reported := w.take(); !slices.Equal(reported, []string{"a", "b", "c", "d"}) {
		t.Errorf("a resync reports %v", reported)
	}
}

// A secret that was read before the watch was established may have changed since.
func TestSecretsReadBeforeTheWatchAreReadAgain(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	w.of("a").Replace(s.source("one"))
	w.of("b").Replace(s.source("one"))
	w.of("a").Reading()

	send(s.next(t), store.Event{Established: true})

	if reported := w.take(); !slices.Equal(reported, []string{"a"}) {
		t.Errorf("reported: %v", reported)
	}
}

// Changes between two watches are not reported, so everything is read again.
func TestAWatchThatEndsIsEstablishedAgain(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	s.err = errors.New("the provider went away")
	w.of("a").Replace(s.source("one"))

	first := s.next(t)
	send(first, store.Event{Established: true})
	close(first)

	send(s.next(t), store.Event{Established: true})

	if reported := w.take(); !slices.Equal(reported, []string{"a"}) {
		t.Errorf("reported after the gap: %v", reported)
	}
}

// A watch that the store denies is not tried again soon.
func TestADeniedWatchIsNotRetriedAtOnce(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	s.err = &store.Error{Code: codes.PermissionDenied}
	w.of("a").Replace(s.source("one"))
	close(s.next(t))

	select {
	case <-s.opened:
		t.Error("a watch that was denied is tried again at once")
	case <-time.After(50 * time.Millisecond):
	}
}

// The watch is opened with the access of any subscriber that may use the store,
// even if the last one may not.
func TestAWatchIsOpenedForAnAllowedSubscriber(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	s.err = errors.New("the provider went away")

	denied := s.source("one")
	denied.Open = func(context.Context) (store.Watcher, error) {
		return nil, errors.New("the namespace is not served any more")
	}

	w.of("b").Replace(s.source("one"))
	first := s.next(t)
	w.of("a").Replace(denied)
	send(first, store.Event{Established: true})
	close(first)

	send(s.next(t), store.Event{Established: true})

	if reported := w.take(); !slices.Contains(reported, "b") {
		t.Errorf("reported after the gap: %v", reported)
	}
}

// A large event of a broken provider must not block the others.
func TestALargeEventIsCheap(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	keys := make([]string, 10_000)

	for i := range keys {
		keys[i] = fmt.Sprintf("unrelated-key-%05d", i)
	}

	for i := range 5_000 {
		w.of(fmt.Sprintf("es-%d", i)).Replace(s.source("a", "b", "c", "d", "e"))
	}

	events := s.next(t)
	began := time.Now()

	send(events, store.Event{Keys: keys})

	if took := time.Since(began); took > 300*time.Millisecond {
		t.Errorf("it took %s", took)
	}
}

func TestAWatchWithoutSubscribersEnds(t *testing.T) {
	w, s, other := newWorld(t), newStore("s"), newStore("other")
	w.of("a").Replace(s.source("one"))
	w.of("b").Replace(s.source("one"))

	events := s.next(t)

	w.of("a").Replace(other.source("one"))
	other.next(t)
	send(events, store.Event{Keys: []string{"one"}})

	if reported := w.take(); !slices.Equal(reported, []string{"b"}) {
		t.Errorf("a subscriber of another store is reported: %v", reported)
	}

	w.of("b").Close()

	deadline := time.After(patience)

	for {
		select {
		case events <- store.Event{}: // it may take one more
		case <-deadline:
			t.Fatal("the watch does not end")
		default:
			if w.shared.Len() == 1 {
				return
			}
		}
	}
}

// A provider that reports changes permanently must not cause a sync per event.
func TestAWatchIsBounded(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	w.of("a").Replace(s.source("one"))

	events := s.next(t)
	done := time.After(2 * time.Second)

	for crying := true; crying; {
		select {
		case events <- store.Event{Keys: []string{"one"}}:
		case <-done:
			crying = false
		}
	}

	if asked := len(w.take()); asked > syncBurst+3*syncRate || asked < syncBurst {
		t.Errorf("%d syncs were asked for", asked)
	}
}
