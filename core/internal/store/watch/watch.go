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

	"github.com/external-secrets/eso/core/internal/subscription"
	"github.com/external-secrets/eso/core/store"
)

const (
	// minPause and maxPause bound the pause between the end of a watch and the
	// next.
	minPause = time.Second
	maxPause = time.Minute
	// refusedPause follows a refusal, such as of credentials that may read but
	// not watch: until then objects are refreshed by their interval.
	refusedPause = 10 * time.Minute
	// syncRate bounds the syncs per second that one watch may cause, after a
	// burst of syncBurst: a provider that reports too much costs no more.
	syncRate  = 20
	syncBurst = 200
	// eventRate bounds the events per second that one watch may report, after a
	// burst of eventBurst: events that concern no object have a cost too.
	eventRate  = 50
	eventBurst = 500
	// maxWatches bounds the watches; stores beyond it are read by the interval.
	maxWatches = 1000
)

// Source is a store whose changes concern a Subscriber.
type Source struct {
	// Name of the watch: sources of one name share one.
	Name string
	// Open returns the watcher of the store, resolved again for each watch.
	Open func(ctx context.Context) (store.Watcher, error)
	// Keys that the subscriber reads; nil means any, as for a find.
	Keys []string
}

// Watches runs the watches of stores. Create it with New.
type Watches struct {
	// changed is called with ExternalSecrets that a change concerns.
	changed func(names ...types.NamespacedName)
	now     func() time.Time
	pauses  pauses
	shared  *subscription.Watches[string, *Subscriber, *limits]
}

// Mark is the state of an ExternalSecret's reports at some moment.
type Mark struct {
	// Reported is when a change was reported that no sync has read yet; zero
	// where there is none.
	Reported time.Time

	count uint64
}

type pauses struct{ shortest, longest, refused time.Duration }

// limits of what one watch may cause and report.
type limits struct{ syncs, events *rate.Limiter }

// Subscriber is one ExternalSecret: the stores that it has subscribed to, and
// what they reported.
type Subscriber struct {
	name         types.NamespacedName
	subscription *subscription.Subscription[string, *Subscriber, *limits]

	mu sync.Mutex
	// sources by the name of the watch.
	sources map[string]Source
	// mark counts the reports, seen is its count at the read of the last
	// successful sync; read is set once this process has read anything.
	mark Mark
	seen uint64
	read bool
}

// New returns Watches that call changed with ExternalSecrets to sync.
func New(changed func(names ...types.NamespacedName)) *Watches {
	w := &Watches{changed: changed, now: time.Now, pauses: pauses{minPause, maxPause, refusedPause}}
	w.shared = subscription.New(subscription.Options[string, *Subscriber, *limits]{
		New: func(string) *limits {
			return &limits{syncs: rate.NewLimiter(syncRate, syncBurst), events: rate.NewLimiter(eventRate, eventBurst)}
		},
		Run: w.run, Max: maxWatches,
	})

	return w
}

// Subscribe returns a Subscriber to no store yet.
func (w *Watches) Subscribe(name types.NamespacedName) *Subscriber {
	s := &Subscriber{name: name}
	s.subscription = w.shared.Subscribe(s)

	return s
}

// Stop ends all watches and waits until they have ended.
func (w *Watches) Stop() { w.shared.Stop() }

// Replace replaces the stores that the subscriber has subscribed to.
func (s *Subscriber) Replace(sources ...Source) {
	names, byName := make([]string, 0, len(sources)), make(map[string]Source, len(sources))

	for _, source := range sources {
		names = append(names, source.Name)
		byName[source.Name] = source
	}

	s.mu.Lock()
	s.sources = byName
	s.mu.Unlock()

	s.subscription.Replace(names...)
}

// Close ends the subscription to all stores.
func (s *Subscriber) Close() { s.Replace() }

// Changed reports whether a change was reported since the read of the last
// successful sync.
func (s *Subscriber) Changed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.mark.count != s.seen
}

// Reading is called before a read. Its result is passed to Synced when the sync
// has succeeded: what is reported in between, or to a sync that fails, has to be
// read again.
func (s *Subscriber) Reading() Mark {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.read = true

	mark := s.mark
	if mark.count == s.seen {
		mark.Reported = time.Time{}
	}

	return mark
}

// Synced means that what was reported before a Reading has reached the target.
func (s *Subscriber) Synced(mark Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.seen = mark.count
}

// report marks the subscriber where an event concerns it, and reports whether it
// does. keys are those of the event; first means that no earlier watch of the
// store was established.
func (s *Subscriber) report(watch string, event store.Event, keys map[string]bool, first bool, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	source, ok := s.sources[watch]

	switch {
	case !ok:
		return false
	case event.Established && first:
		// Secrets that were read before may have changed since. Those that this
		// process has not read at all are not due for that reason.
		if !s.read {
			return false
		}
	case event.Established, event.Resync:
		// Changes since the former watch were not reported.
	case source.Keys != nil && !slices.ContainsFunc(source.Keys, func(key string) bool { return keys[key] }):
		return false
	case source.Keys == nil && len(keys) == 0:
		return false
	}

	s.mark = Mark{Reported: now, count: s.mark.count + 1}

	return true
}

// run watches a store, again and again.
func (w *Watches) run(ctx context.Context, name string, limits *limits) {
	pause, established := w.pauses.shortest, false

	for {
		started := w.now()
		err := w.watch(ctx, name, limits, &established)

		switch {
		case ctx.Err() != nil:
			return
		case refused(err):
			pause = w.pauses.refused
		case w.now().Sub(started) > w.pauses.longest:
			pause = w.pauses.shortest
		}

		timer := time.NewTimer(pause)

		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()

			return
		}

		pause = min(2*pause, w.pauses.longest)
	}
}

// refused reports whether a retry is pointless for a while.
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

// errReplaced means that the store has changed into one of another name: its
// subscribers subscribe to that.
var errReplaced = errors.New("the store has changed")

// open returns the watcher of a store, on behalf of any subscriber that may use
// the store now.
func (w *Watches) open(ctx context.Context, name string) (store.Watcher, error) {
	err := errReplaced

	for _, s := range w.shared.Subscribers(name) {
		s.mu.Lock()
		source, ok := s.sources[name]
		s.mu.Unlock()

		if !ok {
			continue
		}

		watcher, failed := source.Open(ctx)

		switch {
		case failed != nil:
			err = failed
		case watcher != nil && watcher.Name() == name:
			return watcher, nil
		}

		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}

	return nil, err
}

// watch is one watch of a store.
func (w *Watches) watch(ctx context.Context, name string, limits *limits, established *bool) error {
	watcher, err := w.open(ctx, name)
	if err != nil {
		return err
	}

	return watcher.Watch(ctx, func(event store.Event) error {
		if err := limits.events.Wait(ctx); err != nil {
			return err
		}

		keys := make(map[string]bool, len(event.Keys))
		for _, key := range event.Keys {
			keys[key] = true
		}

		// Each is marked before any waits for the limit: what is read in the
		// meantime has to be read again.
		var concerned []types.NamespacedName

		for _, s := range w.shared.Subscribers(name) {
			if s.report(name, event, keys, !*established, w.now()) {
				concerned = append(concerned, s.name)
			}
		}

		for _, object := range concerned {
			if err := limits.syncs.Wait(ctx); err != nil {
				return err
			}

			w.changed(object)
		}

		*established = *established || event.Established

		return nil
	})
}
