package watch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"

	"github.com/external-secrets/eso/core/store"
)

const (
	// shortestPause and longestPause lie between a watch that ended and the
	// next.
	shortestPause = time.Second
	longestPause  = time.Minute
	// refusedPause follows a refusal, such as of a login that may read and not
	// watch: until then the refresh interval has to do.
	refusedPause = 10 * time.Minute
	// told bounds how many syncs a second one watch may ask for, after as many
	// as toldAtOnce: a provider that cries wolf costs no more.
	told       = 20
	toldAtOnce = 200
	// heard bounds how many answers a second are listened to, after as many as
	// heardAtOnce: also those that concern nobody cost something.
	heard       = 50
	heardAtOnce = 500
	// maxWatches bounds the watches; stores beyond it are read by the interval.
	maxWatches = 1000
)

// Want is what an ExternalSecret wants to be told of.
type Want struct {
	// Name of the watch; those of one name are one.
	Name string
	// Open gives the store to watch, anew each time that it is watched.
	Open func(ctx context.Context) (store.Watcher, error)
	// Keys that it reads; nil means any, as for a find.
	Keys []string
}

// Notices keeps the watches. Make it with New.
type Notices struct {
	// changed is called with ExternalSecrets that were told of.
	changed func(names ...types.NamespacedName)
	now     func() time.Time
	// pauses between watches.
	pauses pauses

	mu      sync.Mutex
	watches map[string]*watch
	// wants are the names of the watches of each ExternalSecret.
	wants map[types.NamespacedName][]string
	// marks say how often each was told of, seen how many of these the last sync
	// that succeeded knew of; reads are those that were read at all.
	marks map[types.NamespacedName]Mark
	seen  map[types.NamespacedName]uint64
	reads map[types.NamespacedName]bool

	running sync.WaitGroup
	stopped bool
}

// Mark is what an ExternalSecret was told of until some moment.
type Mark struct {
	// Told is when it was told of a change that no sync has read yet; zero where
	// there is none.
	Told time.Time

	count uint64
}

type pauses struct{ shortest, longest, refused time.Duration }

// watch is one watch and who wants it.
type watch struct {
	name   string
	users  map[types.NamespacedName]Want
	cancel context.CancelFunc
	// syncs and answers bound what the watch may ask for, and how often it may
	// speak.
	syncs, answers *rate.Limiter
}

// New makes Notices that call changed with ExternalSecrets to look at.
func New(changed func(names ...types.NamespacedName)) *Notices {
	return &Notices{
		changed: changed, now: time.Now, pauses: pauses{shortestPause, longestPause, refusedPause},
		watches: map[string]*watch{}, wants: map[types.NamespacedName][]string{},
		marks: map[types.NamespacedName]Mark{}, seen: map[types.NamespacedName]uint64{}, reads: map[types.NamespacedName]bool{},
	}
}

// Want says what an ExternalSecret wants to be told of from now on, in place of
// what it wanted before. Watches that nobody wants end.
func (n *Notices) Want(name types.NamespacedName, wants ...Want) {
	n.mu.Lock()
	defer n.mu.Unlock()

	before := n.wants[name]

	var now []string

	for _, want := range wants {
		if n.add(name, want) {
			now = append(now, want.Name)
		}
	}

	for _, old := range before {
		if !slices.Contains(now, old) {
			n.remove(name, old)
		}
	}

	if len(now) == 0 {
		delete(n.wants, name)

		return
	}

	n.wants[name] = now
}

// Forget drops what is kept of an ExternalSecret.
func (n *Notices) Forget(name types.NamespacedName) {
	n.Want(name)

	n.mu.Lock()
	defer n.mu.Unlock()

	delete(n.marks, name)
	delete(n.seen, name)
	delete(n.reads, name)
}

// Told says whether an ExternalSecret was told of since the read of its last
// sync that succeeded.
func (n *Notices) Told(name types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.marks[name].count != n.seen[name]
}

// Reading says that an ExternalSecret is about to be read. Call it before, and
// give what it answers to Synced when the sync has succeeded: what is told of in
// between, and what a sync that fails was told of, has to be read again.
func (n *Notices) Reading(name types.NamespacedName) Mark {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.reads[name] = true

	mark := n.marks[name]
	if mark.count == n.seen[name] {
		mark.Told = time.Time{}
	}

	return mark
}

// Synced says that what an ExternalSecret was told of before a Reading has
// reached its target.
func (n *Notices) Synced(name types.NamespacedName, mark Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.seen[name] = mark.count
}

// Stop ends all watches and waits for them.
func (n *Notices) Stop() {
	n.mu.Lock()
	n.stopped = true

	for _, w := range n.watches {
		w.cancel()
	}
	n.mu.Unlock()

	n.running.Wait()
}

func (n *Notices) add(name types.NamespacedName, want Want) bool {
	w := n.watches[want.Name]
	if w == nil {
		if n.stopped || len(n.watches) >= maxWatches {
			return false
		}

		ctx, cancel := context.WithCancel(context.Background())
		w = &watch{
			name: want.Name, users: map[types.NamespacedName]Want{}, cancel: cancel,
			syncs: rate.NewLimiter(told, toldAtOnce), answers: rate.NewLimiter(heard, heardAtOnce),
		}
		n.watches[want.Name] = w

		n.running.Go(func() { n.keep(ctx, w) })
	}

	w.users[name] = want

	return true
}

func (n *Notices) remove(name types.NamespacedName, watchName string) {
	w := n.watches[watchName]
	if w == nil {
		return
	}

	if delete(w.users, name); len(w.users) == 0 {
		delete(n.watches, watchName)
		w.cancel()
	}
}

// keep watches until nobody wants that any more.
func (n *Notices) keep(ctx context.Context, w *watch) {
	pause, stood := n.pauses.shortest, false

	for {
		began := n.now()
		err := n.follow(ctx, w, &stood)

		switch {
		case ctx.Err() != nil:
			return
		case refused(err):
			pause = n.pauses.refused
		case n.now().Sub(began) > n.pauses.longest:
			pause = n.pauses.shortest
		}

		timer := time.NewTimer(pause)

		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()

			return
		}

		pause = min(2*pause, n.pauses.longest)
	}
}

// refused tells whether another try is of no use for a while.
func refused(err error) bool {
	typed, ok := errors.AsType[*store.Error](err)
	if !ok {
		return false
	}

	switch typed.Code {
	case codes.PermissionDenied, codes.Unimplemented, codes.InvalidArgument, codes.FailedPrecondition:
		return true
	default:
		return false
	}
}

// errOther says that the store is now another one; its users will say so.
var errOther = errors.New("the store has changed")

// open gives the store to watch, by whoever of the users may use it now.
func (n *Notices) open(ctx context.Context, w *watch) (store.Watcher, error) {
	n.mu.Lock()

	users := make([]Want, 0, len(w.users))
	for _, want := range w.users {
		users = append(users, want)
	}
	n.mu.Unlock()

	err := errOther

	for _, want := range users {
		watcher, failed := want.Open(ctx)

		switch {
		case failed != nil:
			err = failed
		case watcher != nil && watcher.Name() == w.name:
			return watcher, nil
		}

		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}

	return nil, err
}

// follow is one watch of the provider.
func (n *Notices) follow(ctx context.Context, w *watch, stood *bool) error {
	watcher, err := n.open(ctx, w)
	if err != nil {
		return err
	}

	return watcher.Watch(ctx, func(event store.Event) error {
		if err := w.answers.Wait(ctx); err != nil {
			return err
		}

		for _, name := range n.mark(w, event, !*stood) {
			if err := w.syncs.Wait(ctx); err != nil {
				return err
			}

			n.changed(name)
		}

		*stood = *stood || event.Established

		return nil
	})
}

// mark marks and gives the ExternalSecrets that a notice concerns.
func (n *Notices) mark(w *watch, event store.Event, first bool) []types.NamespacedName {
	changed := make(map[string]bool, len(event.Keys))
	for _, key := range event.Keys {
		changed[key] = true
	}

	var concerned []types.NamespacedName

	n.mu.Lock()
	defer n.mu.Unlock()

	for name, want := range w.users {
		switch {
		case event.Established && first:
			// What was read before may have changed since. What was not read at
			// all by this process is not due on that account.
			if !n.reads[name] {
				continue
			}
		case event.Established, event.Resync:
			// Nobody was told of anything in between.
		case want.Keys != nil && !slices.ContainsFunc(want.Keys, func(key string) bool { return changed[key] }):
			continue
		case want.Keys == nil && len(changed) == 0:
			continue
		}

		n.marks[name] = Mark{Told: n.now(), count: n.marks[name].count + 1}

		concerned = append(concerned, name)
	}

	return concerned
}
