package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/kind"
	"github.com/external-secrets/eso/sdk/internal/resolver"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	// constructTimeout bounds the construction of an instance, which concurrent
	// callers share and no single one of them may cancel.
	constructTimeout = 30 * time.Second
	// closeTimeout bounds the closing of an instance.
	closeTimeout = 10 * time.Second
	// outdatedWait is how long to wait for a config at the requested generation:
	// the operator may have read it from another API server.
	outdatedWait = 2 * time.Second
	// outdatedPoll is the pause between two reads of such a config.
	outdatedPoll = 100 * time.Millisecond
	// sweeps is how often unused instances are looked for within Options.Idle.
	sweeps = 10
	// maxSnapshotBytes bounds a config snapshot.
	maxSnapshotBytes = 256 << 10
)

// Options of Sessions. Zero values mean the defaults.
type Options struct {
	// Recheck is how long an instance is used before the objects that its config
	// refers to are read again. Default one minute.
	Recheck time.Duration
	// Idle is how long an unused instance is kept. Default 30 minutes.
	Idle time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets a line where an instance cannot be closed.
	Log *slog.Logger
	// Calls counts the calls of backends; nil counts nothing.
	Calls provider.Calls
	// APIServer is passed to instances.
	APIServer provider.APIServer
	// OwnIdentity lists the namespaces whose configs may use the identity of the
	// process; "*" means all. Default none.
	OwnIdentity []string
}

// definition of a kind of provider config.
type definition = kind.Definition[provider.Environment]

// Sessions keeps the instances, stores and generators, of a provider process.
type Sessions struct {
	client  client.Client
	kinds   map[schema.GroupVersionKind]definition
	options Options

	mu      sync.Mutex
	entries map[key]*entry
	swept   time.Time
	closed  bool
	closing sync.WaitGroup
	// ended is closed when Sessions is closed, to stop the sweeps.
	ended chan struct{}
}

// key identifies an instance. It contains the config's uid, so that a config that
// is deleted and created again is another one.
type key struct {
	gvk        schema.GroupVersionKind
	namespace  string
	name       string
	uid        string
	auth       string
	maxRetries int
	interval   time.Duration
	// snapshot is the digest of the config snapshot; zero for the live config.
	snapshot [sha256.Size]byte
}

// entry is one instance and its use.
type entry struct {
	ready      chan struct{}
	instance   kind.Instance
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

// Session is one call's use of an instance.
type Session struct {
	// Instance to call, a provider.Store or provider.Generator; valid until
	// Release.
	Instance kind.Instance
	// Fresh reports whether the instance was constructed for this call.
	Fresh bool

	sessions *Sessions
	key      key
	entry    *entry
}

// New returns sessions of the given kinds, whose configs and references are read
// with c.
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

	s := &Sessions{client: c, kinds: map[schema.GroupVersionKind]definition{}, options: options, entries: map[key]*entry{}, ended: make(chan struct{})}
	for _, k := range kinds {
		s.kinds[k.Definition().GroupVersionKind] = k.Definition()
	}

	go s.sweep()

	return s
}

// sweep discards unused instances also while there are no calls, so that their
// logins are revoked.
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

// Acquire returns the instance for a call, whose context has been checked, and
// constructs it where there is none. Call Release when the call is over.
func (s *Sessions) Acquire(ctx context.Context, call *pb.CallContext) (*Session, error) {
	return s.AcquireSnapshot(ctx, call, nil)
}

// AcquireSnapshot is Acquire with a recorded config object, as JSON, in place of
// the one in the cluster, which need not exist. Its name, namespace and uid are
// those of the call. An empty snapshot means the config in the cluster.
func (s *Sessions) AcquireSnapshot(ctx context.Context, call *pb.CallContext, snapshot []byte) (*Session, error) {
	gvk := schema.FromAPIVersionAndKind(call.GetConfig().GetApiVersion(), call.GetConfig().GetKind())

	served, ok := s.kinds[gvk]
	if !ok {
		return nil, provider.InvalidConfig("this provider does not serve %s of %s", gvk.Kind, gvk.GroupVersion())
	}

	if len(snapshot) > maxSnapshotBytes {
		return nil, provider.InvalidRequest("the config snapshot has %d bytes, more than %d", len(snapshot), maxSnapshotBytes)
	}

	k, retry := keyOf(gvk, call)
	wanted := call.GetConfig().GetGeneration()

	if len(snapshot) > 0 {
		k.snapshot, wanted = sha256.Sum256(snapshot), 0
	}

	for {
		e, fresh, err := s.entry(k, wanted)
		if err != nil {
			return nil, err
		}

		if fresh {
			go s.fill(context.WithoutCancel(ctx), construction{kind: served, key: k, retry: retry, wanted: wanted, snapshot: snapshot}, e)
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

		return &Session{Instance: e.instance, Fresh: fresh, sessions: s, key: k, entry: e}, nil
	}
}

// Release ends a call's use of the instance.
func (u *Session) Release() { u.sessions.release(u.entry) }

// Discard makes later calls use another instance, for example because the
// backend no longer accepts this one's login.
func (u *Session) Discard() { u.sessions.discard(u.key, u.entry) }

// Ended is closed when the instance is discarded: its config or an object that it
// refers to has changed, or Discard was called. A long use should then end.
func (u *Session) Ended() <-chan struct{} { return u.entry.ended }

// Len returns the number of instances that are kept.
func (s *Sessions) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.entries)
}

// Close closes every instance, once its calls are over, and waits for that until
// ctx is done. Later calls of Acquire fail.
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

// entry returns the entry to use, with this use counted, and whether the caller
// has to fill it.
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

	// Until it is filled the entry has the requested generation, so that calls
	// of the same generation wait for it.
	e := &entry{ready: make(chan struct{}), ended: make(chan struct{}), generation: wanted, users: 1, used: now, checked: now}
	s.entries[k] = e
	s.closing.Add(1)

	return e, true, nil
}

// construction is what an instance is constructed from.
type construction struct {
	kind     definition
	key      key
	retry    provider.Retry
	wanted   int64
	snapshot []byte
}

// fill constructs an entry's instance. Where that fails the entry is discarded
// before any caller sees the error, so that the next call tries again.
func (s *Sessions) fill(ctx context.Context, c construction, e *entry) {
	ctx, cancel := context.WithTimeout(ctx, constructTimeout)
	defer cancel()
	defer close(e.ready)

	references := resolver.New(s.client, c.key.auth)
	instance, generation, err := s.construct(ctx, c, provider.Environment{
		References: references, Retry: c.retry, APIServer: s.options.APIServer, Calls: s.options.Calls,
		OwnIdentity: slices.Contains(s.options.OwnIdentity, c.key.namespace) || slices.Contains(s.options.OwnIdentity, "*"),
	})

	s.mu.Lock()
	defer s.mu.Unlock()

	if err != nil {
		e.err = err
		s.discardLocked(c.key, e)

		return
	}

	e.instance, e.references = instance, references
	e.generation = max(e.generation, generation)
}

// construct returns a new instance and the generation of its config. It runs in a
// goroutine of its own, where it has to recover from a panic itself.
func (s *Sessions) construct(ctx context.Context, c construction, env provider.Environment) (instance kind.Instance, generation int64, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			s.panicked("constructing a store", panicked)

			err = &provider.Error{
				Code: codes.Internal, Reason: pb.ReasonInternal, StoreScope: true,
				Message: "the provider has a defect: it panicked while it constructed a store; its log names the place",
			}
		}
	}()

	config, err := s.config(ctx, c)
	if err != nil {
		return nil, 0, err
	}

	instance, err = c.kind.New(ctx, env, config)

	return instance, config.GetGeneration(), err
}

// panicked logs a panic's type and place. Its text may hold a credential.
func (s *Sessions) panicked(doing string, panicked any) {
	s.options.Log.Error("panic", "doing", doing, "type", fmt.Sprintf("%T", panicked), "stack", string(debug.Stack()))
}

// config returns the config object of the snapshot, or reads it, at the requested
// generation or a later one.
func (s *Sessions) config(ctx context.Context, c construction) (client.Object, error) {
	k := c.key

	if len(c.snapshot) > 0 {
		return decodeSnapshot(c)
	}

	deadline := s.options.Now().Add(outdatedWait)

	for {
		config := c.kind.NewConfig()
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: k.name}, config); err != nil {
			return nil, unread(k, err)
		}

		switch {
		case k.uid != "" && string(config.GetUID()) != k.uid:
			return nil, outdated("%s %q in namespace %q is another object than the one that the call names", k.gvk.Kind, k.name, k.namespace)
		case config.GetGeneration() >= c.wanted:
			return config, nil
		case s.options.Now().After(deadline):
			return nil, outdated("%s %q in namespace %q is seen at generation %d, the call wants %d", k.gvk.Kind, k.name, k.namespace, config.GetGeneration(), c.wanted)
		}

		select {
		case <-time.After(outdatedPoll):
		case <-ctx.Done():
			return nil, provider.AsError(ctx.Err())
		}
	}
}

// decodeSnapshot decodes a config snapshot. The identity of the object is the
// call's, which has been checked: a snapshot cannot lead to another namespace.
func decodeSnapshot(c construction) (client.Object, error) {
	config := c.kind.NewConfig()
	if err := json.Unmarshal(c.snapshot, config); err != nil {
		return nil, provider.InvalidRequest("cannot decode the config snapshot as a %s", c.key.gvk.Kind)
	}

	if gvk := config.GetObjectKind().GroupVersionKind(); !gvk.Empty() && gvk != c.key.gvk {
		return nil, provider.InvalidRequest("the config snapshot is of %s, the call names %s", gvk, c.key.gvk)
	}

	config.SetNamespace(c.key.namespace)
	config.SetName(c.key.name)
	config.SetUID(types.UID(c.key.uid))

	return config, nil
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

// due reports, to one caller per interval, whether an entry's references have to
// be read again.
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

// closeIfDoneLocked closes the instance of an entry that is discarded and unused.
func (s *Sessions) closeIfDoneLocked(e *entry) {
	if !e.discarded || e.users > 0 {
		return
	}

	go func() {
		defer s.closing.Done()

		<-e.ready

		if e.instance == nil {
			return
		}

		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()

		defer func() {
			if panicked := recover(); panicked != nil {
				s.panicked("closing a store", panicked)
			}
		}()

		if err := e.instance.Close(ctx); err != nil {
			s.options.Log.Warn("cannot close a store", "error", err.Error())
		}
	}()
}

// sweepLocked discards the instances that have not been used for Options.Idle.
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
