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

// fakeStore is one that the test lets tell of changes.
type fakeStore struct {
	name string
	// opened gets each watch that begins; it ends when its notices are closed.
	opened chan chan store.Event
	err    error
}

func newStore(name string) *fakeStore {
	return &fakeStore{name: name, opened: make(chan chan store.Event, 10)}
}

func (s *fakeStore) Name() string { return s.name }

func (s *fakeStore) Watch(ctx context.Context, tell func(store.Event) error) error {
	notices := make(chan store.Event)
	s.opened <- notices

	for {
		select {
		case n, ok := <-notices:
			if !ok {
				return s.err
			}

			if err := tell(n); err != nil {
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
	case notices := <-s.opened:
		return notices
	case <-time.After(patience):
		t.Fatal("the store is not watched")

		return nil
	}
}

// world is Watches, their subscribers, and those that they have reported.
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

// take gives whom was told of since the last time.
func (w *world) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	reported := w.reported
	w.reported = nil
	slices.Sort(reported)

	return reported
}

// say tells a notice, and returns when it was dealt with: a second one, which
// is of nothing and concerns nobody, also no finder, is taken only then.
func say(notices chan store.Event, n store.Event) {
	notices <- n
	notices <- store.Event{}
}

func TestTellsWhoReadsTheKey(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	w.of("a").Replace(s.source("one", "two"))
	w.of("b").Replace(s.source("two"))
	w.of("c").Replace(s.source("three"))
	w.of("d").Replace(Source{Name: "s", Open: s.source().Open})

	notices := s.next(t)
	say(notices, store.Event{Established: true})

	if told := w.take(); len(told) > 0 {
		t.Errorf("what nobody has read is not due because a watch stands: %v", told)
	}

	say(notices, store.Event{Keys: []string{"nobody's"}})

	// The finder reads any key.
	if told := w.take(); !slices.Equal(told, []string{"d"}) {
		t.Errorf("told of a key that only a find can give: %v", told)
	}

	say(notices, store.Event{Keys: []string{"two"}})

	if told := w.take(); !slices.Equal(told, []string{"a", "b", "d"}) {
		t.Errorf("told: %v", told)
	}

	if !w.of("a").Changed() || w.of("c").Changed() {
		t.Error("the mark is not where it belongs")
	}

	mark := w.of("a").Reading()

	if mark.Reported.IsZero() {
		t.Error("a read does not learn when it was told of the change")
	}

	if !w.of("a").Changed() {
		t.Error("a read that may fail takes the mark away")
	}

	w.of("a").Synced(mark)

	if w.of("a").Changed() {
		t.Error("a mark outlives the sync")
	}

	mark = w.of("a").Reading()

	if !mark.Reported.IsZero() {
		t.Error("a read learns of a change that was read before")
	}

	say(notices, store.Event{Keys: []string{"one"}})
	w.take()
	w.of("a").Synced(mark)

	if !w.of("a").Changed() {
		t.Error("what was told during a read is lost")
	}

	if len(s.opened) > 0 {
		t.Error("a second watch of one store")
	}

	say(notices, store.Event{Resync: true})

	if told := w.take(); !slices.Equal(told, []string{"a", "b", "c", "d"}) {
		t.Errorf("a resync tells %v", told)
	}
}

// What was read before the watch stood may have changed in between.
func TestWhatWasReadBeforeTheWatchStoodIsReadAgain(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	w.of("a").Replace(s.source("one"))
	w.of("b").Replace(s.source("one"))
	w.of("a").Reading()

	say(s.next(t), store.Event{Established: true})

	if told := w.take(); !slices.Equal(told, []string{"a"}) {
		t.Errorf("told: %v", told)
	}
}

// A gap between two watches hides changes.
func TestAWatchThatEndsIsMadeAgain(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	s.err = errors.New("the provider went away")
	w.of("a").Replace(s.source("one"))

	first := s.next(t)
	say(first, store.Event{Established: true})
	close(first)

	say(s.next(t), store.Event{Established: true})

	if told := w.take(); !slices.Equal(told, []string{"a"}) {
		t.Errorf("told after the gap: %v", told)
	}
}

// A login that may not watch may not watch in a second's time either.
func TestARefusedWatchIsLeftAlone(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	s.err = &store.Error{Code: codes.PermissionDenied}
	w.of("a").Replace(s.source("one"))
	close(s.next(t))

	select {
	case <-s.opened:
		t.Error("a watch that was refused is tried again at once")
	case <-time.After(50 * time.Millisecond):
	}
}

// Who wanted the watch last may no longer use the store; others may.
func TestAWatchIsOpenedByWhoeverMay(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	s.err = errors.New("the provider went away")

	denied := s.source("one")
	denied.Open = func(context.Context) (store.Watcher, error) {
		return nil, errors.New("the namespace is not served any more")
	}

	w.of("b").Replace(s.source("one"))
	first := s.next(t)
	w.of("a").Replace(denied)
	say(first, store.Event{Established: true})
	close(first)

	say(s.next(t), store.Event{Established: true})

	if told := w.take(); !slices.Contains(told, "b") {
		t.Errorf("told after the gap: %v", told)
	}
}

// One answer of a broken provider must not keep all others waiting.
func TestALargeAnswerIsCheap(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	keys := make([]string, 10_000)

	for i := range keys {
		keys[i] = fmt.Sprintf("key-of-nobody-%05d", i)
	}

	for i := range 5_000 {
		w.of(fmt.Sprintf("es-%d", i)).Replace(s.source("a", "b", "c", "d", "e"))
	}

	notices := s.next(t)
	began := time.Now()

	say(notices, store.Event{Keys: keys})

	if took := time.Since(began); took > 300*time.Millisecond {
		t.Errorf("it took %s", took)
	}
}

func TestAWatchThatNobodyWantsEnds(t *testing.T) {
	w, s, other := newWorld(t), newStore("s"), newStore("other")
	w.of("a").Replace(s.source("one"))
	w.of("b").Replace(s.source("one"))

	notices := s.next(t)

	w.of("a").Replace(other.source("one"))
	other.next(t)
	say(notices, store.Event{Keys: []string{"one"}})

	if told := w.take(); !slices.Equal(told, []string{"b"}) {
		t.Errorf("who wants another store is told of this one: %v", told)
	}

	w.of("b").Close()

	deadline := time.After(patience)

	for {
		select {
		case notices <- store.Event{}: // it may take one more
		case <-deadline:
			t.Fatal("the watch goes on")
		default:
			if w.shared.Len() == 1 {
				return
			}
		}
	}
}

// A provider that cries wolf must not cost a sync per cry.
func TestAWatchIsBounded(t *testing.T) {
	w, s := newWorld(t), newStore("s")
	w.of("a").Replace(s.source("one"))

	notices := s.next(t)
	done := time.After(2 * time.Second)

	for crying := true; crying; {
		select {
		case notices <- store.Event{Keys: []string{"one"}}:
		case <-done:
			crying = false
		}
	}

	if asked := len(w.take()); asked > syncBurst+3*syncRate || asked < syncBurst {
		t.Errorf("%d syncs were asked for", asked)
	}
}
