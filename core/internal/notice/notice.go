package notice

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/types"

	"github.com/external-secrets/eso/core/internal/providerclient"
	"github.com/external-secrets/eso/core/internal/source"
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
	// maxWatches bounds the watches; stores beyond it are read by the interval.
	maxWatches = 1000
)

// Want is what an ExternalSecret wants to be told of.
type Want struct {
	// Name of the watch; those of one name are one.
	Name string
	// Open gives the store to watch, anew each time that it is watched.
	Open func(ctx context.Context) (source.Watcher, error)
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
	// marks are those that were told of and not read since; reads is when each
	// was read last.
	marks map[types.NamespacedName]bool
	reads map[types.NamespacedName]time.Time

	running sync.WaitGroup
	stopped bool
}

type pauses struct{ shortest, longest, refused time.Duration }

// watch is one watch and who wants it.
type watch struct {
	name    string
	open    func(ctx context.Context) (source.Watcher, error)
	users   map[types.NamespacedName][]string
	cancel  context.CancelFunc
	limiter *rate.Limiter
}

// New makes Notices that call changed with ExternalSecrets to look at.
func New(changed func(names ...types.NamespacedName)) *Notices {
	return &Notices{
		changed: changed, now: time.Now, pauses: pauses{shortestPause, longestPause, refusedPause},
		watches: map[string]*watch{}, wants: map[types.NamespacedName][]string{},
		marks: map[types.NamespacedName]bool{}, reads: map[types.NamespacedName]time.Time{},
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
	delete(n.reads, name)
}

// Told says whether an ExternalSecret was told of since it was read last.
func (n *Notices) Told(name types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.marks[name]
}

// Reading says that an ExternalSecret is about to be read: what it was told of
// is seen to. Call it before.
func (n *Notices) Reading(name types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()

	delete(n.marks, name)
	n.reads[name] = n.now()
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
		w = &watch{name: want.Name, users: map[types.NamespacedName][]string{}, cancel: cancel, limiter: rate.NewLimiter(told, toldAtOnce)}
		n.watches[want.Name] = w

		n.running.Go(func() { n.keep(ctx, w) })
	}

	w.open = want.Open
	w.users[name] = want.Keys

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
	typed, ok := errors.AsType[*providerclient.Error](err)
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

// follow is one watch of the provider.
func (n *Notices) follow(ctx context.Context, w *watch, stood *bool) error {
	n.mu.Lock()
	open := w.open
	n.mu.Unlock()

	watcher, err := open(ctx)
	if err != nil {
		return err
	}

	if watcher == nil || watcher.Watched() != w.name {
		return errOther
	}

	return watcher.Watch(ctx, func(notice source.Notice) error {
		var concerned []types.NamespacedName

		n.mu.Lock()

		for name, keys := range w.users {
			switch {
			case notice.Stands && !*stood:
				// What was read before may have changed since. What was not read
				// at all by this process is not due on that account.
				if n.reads[name].IsZero() {
					continue
				}
			case notice.Stands, notice.Resync:
				// Nobody was told of anything in between.
			case keys != nil && !slices.ContainsFunc(notice.Keys, func(key string) bool { return slices.Contains(keys, key) }):
				continue
			}

			n.marks[name] = true
			concerned = append(concerned, name)
		}

		n.mu.Unlock()

		if notice.Stands {
			*stood = true
		}

		for _, name := range concerned {
			if err := w.limiter.Wait(ctx); err != nil {
				return err
			}

			n.changed(name)
		}

		return nil
	})
}
