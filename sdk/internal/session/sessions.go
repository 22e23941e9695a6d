package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
	"github.com/external-secrets/eso/sdk/resolver"
)

const (
	// makeTimeout bounds the making of a store, which callers share and no
	// single one of them may cancel.
	makeTimeout = 30 * time.Second
	// closeTimeout bounds the closing of one.
	closeTimeout = 10 * time.Second
	// outdatedWait is how long a config at the wanted generation is waited
	// for: the operator may have seen it on another API server.
	outdatedWait = 2 * time.Second
	// sweeps of unused stores are made in the time that one is kept.
	sweeps = 10
	// outdatedPoll is the pause between two looks.
	outdatedPoll = 100 * time.Millisecond
)

// Options of Sessions. Zero values mean the defaults.
type Options struct {
	// Recheck is how long a store is used before what it refers to is looked
	// at again. Default one minute.
	Recheck time.Duration
	// Idle is how long an unused store is kept. Default 30 minutes.
	Idle time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets a line where a store cannot be closed.
	Log *slog.Logger
	// Calls counts what stores call; nil counts nothing.
	Calls provider.Calls
	// APIServer is told to stores.
	APIServer provider.APIServer
	// OwnIdentity lists the namespaces whose configs may use the identity of the
	// process; "*" stands for all. Default none.
	OwnIdentity []string
}

// Sessions keeps the stores of a provider process.
type Sessions struct {
	client  client.Client
	kinds   map[schema.GroupVersionKind]provider.Kind
	options Options

	mu      sync.Mutex
	entries map[key]*entry
	swept   time.Time
	closed  bool
	closing sync.WaitGroup
	// ended ends the sweeping.
	ended chan struct{}
}

// key says whose store it is. The uid stands for the config's name, so that a
// config that is deleted and made again is another one.
type key struct {
	gvk        schema.GroupVersionKind
	namespace  string
	name       string
	uid        string
	auth       string
	maxRetries int
	interval   time.Duration
}

// entry is one store and its use.
type entry struct {
	ready      chan struct{}
	store      provider.Store
	references *resolver.Resolver
	generation int64
	err        error

	users     int
	used      time.Time
	checked   time.Time
	discarded bool
	// ended is closed when the entry is discarded.
	ended chan struct{}
}

// Session is one call's use of a store.
type Session struct {
	// Store to call; valid until Release.
	Store provider.Store
	// Fresh says that the store was made for this very call.
	Fresh bool

	sessions *Sessions
	key      key
	entry    *entry
}

// New keeps the stores of the given kinds, whose configs and references are
// read with c.
func New(c client.Client, kinds []provider.Kind, options Options) *Sessions {
	if options.Recheck == 0 {
		options.Recheck = time.Minute
	}

	if options.Idle == 0 {
		options.Idle = 30 * time.Minute
	}

	if options.Now == nil {
		options.Now = time.Now
	}

	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}

	s := &Sessions{client: c, kinds: map[schema.GroupVersionKind]provider.Kind{}, options: options, entries: map[key]*entry{}, ended: make(chan struct{})}
	for _, kind := range kinds {
		s.kinds[kind.GroupVersionKind()] = kind
	}

	go s.sweep()

	return s
}

// sweep discards unused stores also where no call comes any more: a login that
// nobody uses is to end.
func (s *Sessions) sweep() {
	ticker := time.NewTicker(s.options.Idle / sweeps)
	defer ticker.Stop()

	for {
		select {
		case <-ticker.C:
			s.mu.Lock()
			s.sweepLocked(s.options.Now())
			s.mu.Unlock()
		case <-s.ended:
			return
		}
	}
}

// Acquire gives the store for a call, whose context has been checked. Release
// it when the call is over.
func (s *Sessions) Acquire(ctx context.Context, call *pb.CallContext) (*Session, error) {
	gvk := schema.FromAPIVersionAndKind(call.GetConfig().GetApiVersion(), call.GetConfig().GetKind())

	kind, ok := s.kinds[gvk]
	if !ok {
		return nil, provider.InvalidConfig("this provider does not serve %s of %s", gvk.Kind, gvk.GroupVersion())
	}

	k, retry := keyOf(gvk, call)
	wanted := call.GetConfig().GetGeneration()

	for {
		e, fresh, err := s.entry(k, wanted)
		if err != nil {
			return nil, err
		}

		if fresh {
			go s.fill(context.WithoutCancel(ctx), kind, k, retry, wanted, e)
		}

		select {
		case <-e.ready:
		case <-ctx.Done():
			s.release(e)

			return nil, provider.AsError(ctx.Err())
		}

		if e.err != nil {
			s.release(e)

			return nil, e.err
		}

		if !fresh && s.due(e) && e.references.Changed(ctx) {
			s.discard(k, e)
			s.release(e)

			continue
		}

		return &Session{Store: e.store, Fresh: fresh, sessions: s, key: k, entry: e}, nil
	}
}

// Release ends a call's use of the store.
func (u *Session) Release() { u.sessions.release(u.entry) }

// Discard makes later calls use another store, for example because the
// backend no longer accepts this one's login.
func (u *Session) Discard() { u.sessions.discard(u.key, u.entry) }

// Ended is closed when the store is no longer the one to use: its config or what
// that refers to has changed, or it was discarded. A use that lasts should end.
func (u *Session) Ended() <-chan struct{} { return u.entry.ended }

// Len is how many stores are kept.
func (s *Sessions) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.entries)
}

// Close closes every store, once its calls are over, and waits for that until
// ctx ends. Later calls of Acquire fail.
func (s *Sessions) Close(ctx context.Context) error {
	s.mu.Lock()

	if !s.closed {
		close(s.ended)
	}

	s.closed = true

	for k, e := range s.entries {
		s.discardLocked(k, e)
	}
	s.mu.Unlock()

	done := make(chan struct{})

	go func() {
		s.closing.Wait()
		close(done)
	}()

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errors.New("cannot close every store in time")
	}
}

func keyOf(gvk schema.GroupVersionKind, call *pb.CallContext) (key, provider.Retry) {
	config := call.GetConfig()
	k := key{gvk: gvk, namespace: config.GetNamespace(), name: config.GetName(), uid: config.GetUid(), auth: call.GetAuthenticationNamespace(), maxRetries: -1}

	var retry provider.Retry

	if settings := call.GetRetry(); settings != nil {
		if settings.MaxRetries != nil {
			n := int(settings.GetMaxRetries())
			retry.MaxRetries, k.maxRetries = &n, n
		}

		retry.Interval = settings.GetRetryInterval().AsDuration()
		k.interval = retry.Interval
	}

	return k, retry
}

// entry gives the entry to use, counted as used, and whether the caller has to
// fill it.
func (s *Sessions) entry(k key, wanted int64) (*entry, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return nil, false, provider.Unavailable("the provider is shutting down")
	}

	now := s.options.Now()
	s.sweepLocked(now)

	if e, ok := s.entries[k]; ok {
		if e.generation >= wanted {
			e.users++
			e.used = now

			return e, false, nil
		}

		s.discardLocked(k, e)
	}

	// Until it is filled the entry claims the wanted generation, so that calls
	// of the same generation wait for it.
	e := &entry{ready: make(chan struct{}), ended: make(chan struct{}), generation: wanted, users: 1, used: now, checked: now}
	s.entries[k] = e
	s.closing.Add(1)

	return e, true, nil
}

// fill makes an entry's store. One that cannot be made is discarded before
// anybody hears of it, so that the next call tries again.
func (s *Sessions) fill(ctx context.Context, kind provider.Kind, k key, retry provider.Retry, wanted int64, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	defer close(e.ready)

	references := resolver.New(s.client, k.auth)
	store, generation, err := s.construct(ctx, kind, k, provider.Environment{
		References: references, Retry: retry, APIServer: s.options.APIServer, Calls: s.options.Calls,
		OwnIdentity: slices.Contains(s.options.OwnIdentity, k.namespace) || slices.Contains(s.options.OwnIdentity, "*"),
	}, wanted)

	s.mu.Lock()
	defer s.mu.Unlock()

	if err != nil {
		e.err = err
		s.discardLocked(k, e)

		return
	}

	e.store, e.references = store, references
	e.generation = max(e.generation, generation)
}

// construct makes a store and tells the generation of its config. In this
// goroutine nobody else would keep a panic from ending the process.
func (s *Sessions) construct(ctx context.Context, kind provider.Kind, k key, env provider.Environment, wanted int64) (store provider.Store, generation int64, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			s.panicked("making a store", panicked)

			err = &provider.Error{
				Code: codes.Internal, Reason: pb.ReasonInternal, StoreScope: true,
				Message: "the provider has a defect: it panicked when it made a store; its log says where",
			}
		}
	}()

	config, err := s.config(ctx, kind, k, wanted)
	if err != nil {
		return nil, 0, err
	}

	store, err = kind.NewStore(ctx, env, config)

	return store, config.GetGeneration(), err
}

// panicked logs a panic's type and place. Its text may hold a credential.
func (s *Sessions) panicked(doing string, panicked any) {
	s.options.Log.Error("panic", "doing", doing, "type", fmt.Sprintf("%T", panicked), "stack", string(debug.Stack()))
}

// config reads the config object, at the wanted generation or a later one.
func (s *Sessions) config(ctx context.Context, kind provider.Kind, k key, wanted int64) (client.Object, error) {
	deadline := s.options.Now().Add(outdatedWait)

	for {
		config := kind.NewConfig()
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: k.name}, config); err != nil {
			return nil, unread(k, err)
		}

		switch {
		case k.uid != "" && string(config.GetUID()) != k.uid:
			return nil, outdated("%s %q in namespace %q is another object than the one that the call names", k.gvk.Kind, k.name, k.namespace)
		case config.GetGeneration() >= wanted:
			return config, nil
		case s.options.Now().After(deadline):
			return nil, outdated("%s %q in namespace %q is seen at generation %d, the call wants %d", k.gvk.Kind, k.name, k.namespace, config.GetGeneration(), wanted)
		}

		select {
		case <-time.After(outdatedPoll):
		case <-ctx.Done():
			return nil, provider.AsError(ctx.Err())
		}
	}
}

func unread(k key, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return provider.InvalidConfig("%s %q does not exist in namespace %q", k.gvk.Kind, k.name, k.namespace)
	case apierrors.IsForbidden(err):
		return provider.InvalidConfig("the provider's ServiceAccount may not read %s %q in namespace %q", k.gvk.Kind, k.name, k.namespace)
	default:
		return provider.Unavailable("cannot read %s %q in namespace %q: %v", k.gvk.Kind, k.name, k.namespace, err)
	}
}

func outdated(format string, args ...any) error {
	e := provider.Unavailable(format, args...)
	e.Reason = pb.ReasonConfigOutdated

	return e
}

// due tells, to one caller per interval, that an entry's references are to be
// looked at.
func (s *Sessions) due(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.options.Now()
	if since := now.Sub(e.checked); since >= 0 && since < s.options.Recheck {
		return false
	}

	e.checked = now

	return true
}

func (s *Sessions) release(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()

	e.users--
	s.closeIfDoneLocked(e)
}

func (s *Sessions) discard(k key, e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.discardLocked(k, e)
}

func (s *Sessions) discardLocked(k key, e *entry) {
	if e.discarded {
		return
	}

	e.discarded = true
	close(e.ended)

	if s.entries[k] == e {
		delete(s.entries, k)
	}

	s.closeIfDoneLocked(e)
}

// closeIfDoneLocked closes the store of an entry that is discarded and unused.
func (s *Sessions) closeIfDoneLocked(e *entry) {
	if !e.discarded || e.users > 0 {
		return
	}

	go func() {
		defer s.closing.Done()

		<-e.ready

		if e.store == nil {
			return
		}

		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()

		defer func() {
			if panicked := recover(); panicked != nil {
				s.panicked("closing a store", panicked)
			}
		}()

		if err := e.store.Close(ctx); err != nil {
			s.options.Log.Warn("cannot close a store", "error", err.Error())
		}
	}()
}

// sweepLocked discards what nobody has used for a while.
func (s *Sessions) sweepLocked(now time.Time) {
	if since := now.Sub(s.swept); since >= 0 && since < s.options.Idle/sweeps {
		return
	}

	s.swept = now

	for k, e := range s.entries {
		if e.users == 0 && now.Sub(e.used) > s.options.Idle {
			s.discardLocked(k, e)
		}
	}
}
