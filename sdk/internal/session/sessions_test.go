package session

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// patience bounds waits that a correct program never sees the end of.
const patience = 10 * time.Second

// canary is used as a credential: no log may contain it.
const canary = "canary-e4a2"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a backend client that does nothing but live.
type store struct {
	number   int
	env      provider.Environment
	config   *corev1.ConfigMap
	closed   chan struct{}
	closing  func() error
	closings atomic.Int32
}

func (s *store) Validate(context.Context) (provider.Validation, error) {
	return provider.Validation{}, nil
}

func (s *store) Close(context.Context) error {
	defer close(s.closed)

	s.closings.Add(1)

	if s.closing != nil {
		return s.closing()
	}

	return nil
}

func (s *store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// world is a provider process: a cluster, the sessions, and what was made. Its
// configs are ConfigMaps, because every scheme has those.
type world struct {
	t        *testing.T
	kube     client.WithWatch
	sessions *Sessions

	// construct is called in the constructor; may be nil.
	construct func(ctx context.Context, s *store) error
	// answer is what the API server says to a read; may be nil.
	answer func(client.Object) error
	reads  atomic.Int32

	mu  sync.Mutex
	all []*store
	log bytes.Buffer
}

func newWorld(t *testing.T, options Options, objects ...client.Object) *world {
	t.Helper()

	w := &world{t: t}
	w.kube = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			w.reads.Add(1)

			if w.answer != nil {
				if err := w.answer(into); err != nil {
					return err
				}
			}

			return c.Get(ctx, key, into, options...)
		},
	}).Build()
	options.Log = slog.New(slog.NewTextHandler(w, nil))

	kind := provider.StoreKind(corev1.AddToScheme, func(ctx context.Context, env provider.Environment, config *corev1.ConfigMap) (*store, error) {
		s := &store{env: env, config: config, closed: make(chan struct{})}

		w.mu.Lock()
		w.all = append(w.all, s)
		s.number = len(w.all)
		w.mu.Unlock()

		if w.construct != nil {
			if err := w.construct(ctx, s); err != nil {
				return nil, err
			}
		}

		return s, nil
	})
	w.sessions = New(w.kube, []provider.Kind{kind}, options)

	return w
}

func (w *world) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.log.Write(line)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.log.String()
}

func (w *world) made() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return len(w.all)
}

// use acquires a store that must be there.
func (w *world) use(call *pb.CallContext) (*Session, *store) {
	w.t.Helper()

	session, err := w.sessions.Acquire(w.t.Context(), call)
	if err != nil {
		w.t.Fatalf("cannot acquire: %v", err)
	}

	s, _ := session.Instance.(*store)

	return session, s
}

// once uses a store and releases it.
func (w *world) once(call *pb.CallContext) *store {
	w.t.Helper()

	session, s := w.use(call)
	session.Release()

	return s
}

func (w *world) close() {
	w.t.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	if err := w.sessions.Close(ctx); err != nil {
		w.t.Errorf("cannot close: %v", err)
	}

	for _, s := range w.all {
		if n := s.closings.Load(); n > 1 {
			w.t.Errorf("store %d was closed %d times", s.number, n)
		}
	}
}

// awaitClosed waits until a store is closed.
func (w *world) awaitClosed(s *store) {
	w.t.Helper()

	select {
	case <-s.closed:
	case <-time.After(patience):
		w.t.Fatalf("store %d was not closed", s.number)
	}
}

// await waits until a condition holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()

	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain until %s", what)
		}

		time.Sleep(time.Millisecond)
	}
}

// users of all the stores that are kept.
func (w *world) users() int {
	w.sessions.mu.Lock()
	defer w.sessions.mu.Unlock()

	n := 0
	for _, e := range w.sessions.entries {
		n += e.users
	}

	return n
}

func config(generation int64) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "configs", Name: "backend", UID: "uid", Generation: generation}}
}

func callFor(generation int64) *pb.CallContext {
	return &pb.CallContext{
		RequestId: "1",
		Config: &pb.ConfigReference{
			ApiVersion: "v1", Kind: "ConfigMap", Namespace: "configs", Name: "backend", Uid: "uid", Generation: generation,
		},
		AuthenticationNamespace: "configs",
	}
}

// clock is set by the test.
type clock struct{ nanoseconds atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanoseconds.Store(time.Now().UnixNano())

	return c
}

func (c *clock) Now() time.Time       { return time.Unix(0, c.nanoseconds.Load()) }
func (c *clock) pass(d time.Duration) { c.nanoseconds.Add(int64(d)) }

func TestConcurrentCallsShareOneConstruction(t *testing.T) {
	const calls = 20

	w := newWorld(t, Options{}, config(1))
	defer w.close()

	proceed := make(chan struct{})
	w.construct = func(context.Context, *store) error {
		<-proceed

		return nil
	}

	var (
		wait  sync.WaitGroup
		fresh atomic.Int32
	)

	for range calls {
		wait.Go(func() {
			session, err := w.sessions.Acquire(t.Context(), callFor(1))
			if err != nil {
				t.Errorf("cannot acquire: %v", err)

				return
			}
			defer session.Release()

			if session.Fresh {
				fresh.Add(1)
			}
		})
	}

	w.await("every call waits for the store", func() bool { return w.users() == calls })
	close(proceed)
	wait.Wait()

	if w.made() != 1 || fresh.Load() != 1 {
		t.Errorf("%d stores were created, and %d calls were marked as fresh", w.made(), fresh.Load())
	}

	if n := w.sessions.Len(); n != 1 {
		t.Errorf("%d stores are kept", n)
	}
}

func TestNewGeneration(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	inFlight, old := w.use(callFor(1))
	second, _ := w.use(callFor(1))

	if err := w.kube.Update(t.Context(), config(2)); err != nil {
		t.Fatal(err)
	}

	if s := w.once(callFor(1)); s != old {
		t.Error("a call that wants the generation that the store has got another store")
	}

	next := w.once(callFor(2))
	if next == old || next.config.Generation != 2 {
		t.Fatalf("a call that wants generation 2 got store %d of generation %d", next.number, next.config.Generation)
	}

	if s := w.once(callFor(1)); s != next {
		t.Error("a caller that lags behind must get the newer store, or two callers would take turns in making them")
	}

	inFlight.Release()

	if old.isClosed() {
		t.Error("the old store was closed while a call used it")
	}

	second.Release()
	w.awaitClosed(old)

	if next.isClosed() {
		t.Error("the new store was closed")
	}
}

// What a call may share its store with.
func TestKey(t *testing.T) {
	for _, test := range []struct {
		name, why string
		change    func(*pb.CallContext)
		same      bool
	}{
		{
			name: "same", why: "otherwise nothing would be shared at all",
			change: func(*pb.CallContext) {}, same: true,
		},
		{
			name: "other request, store object and source", why: "none of them is an input of the store",
			change: func(c *pb.CallContext) {
				c.RequestId, c.SourceNamespace, c.Store = "2", "elsewhere", &pb.StoreReference{Name: "other", Uid: "other"}
			},
			same: true,
		},
		{
			name: "other authentication namespace", why: "credentials of one namespace must never serve another",
			change: func(c *pb.CallContext) { c.AuthenticationNamespace = "team-b" },
		},
		{
			name: "no retries", why: "0 is not the provider's default",
			change: func(c *pb.CallContext) { c.Retry = &pb.RetrySettings{MaxRetries: new(int32)} },
		},
		{
			name: "other interval", why: "the store's calls of the backend behave otherwise",
			change: func(c *pb.CallContext) { c.Retry = &pb.RetrySettings{RetryInterval: durationpb.New(time.Second)} },
		},
		{
			name: "empty retry settings", why: "they say the same as none",
			change: func(c *pb.CallContext) { c.Retry = &pb.RetrySettings{} }, same: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Options{}, config(1))
			defer w.close()

			call := callFor(1)
			test.change(call)

			first, second := w.once(callFor(1)), w.once(call)
			if (first == second) != test.same {
				t.Errorf("%s: stores %d and %d", test.why, first.number, second.number)
			}

			if again := w.once(callFor(1)); again != first {
				t.Errorf("%s: the first store was lost", test.why)
			}

			if got := second.env.References.Namespace(); got != call.GetAuthenticationNamespace() {
				t.Errorf("%s: references resolve in %q", test.why, got)
			}
		})
	}
}

// A config that is deleted and created again has the same name, and its generations
// restart.
func TestOtherUID(t *testing.T) {
	w := newWorld(t, Options{}, config(3))
	defer w.close()

	first := w.once(callFor(3))

	replacement := config(1)
	replacement.UID = "uid-2"

	if err := w.kube.Delete(t.Context(), config(3)); err != nil {
		t.Fatal(err)
	}

	if err := w.kube.Create(t.Context(), replacement); err != nil {
		t.Fatal(err)
	}

	call := callFor(1)
	call.Config.Uid = "uid-2"

	second := w.once(call)
	if second == first || second.config.UID != types.UID("uid-2") {
		t.Errorf("the new object got store %d, made of uid %s", second.number, second.config.UID)
	}
}

func TestRetrySettings(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	if got := w.once(callFor(1)).env.Retry; got.MaxRetries != nil || got.Interval != 0 {
		t.Errorf("without settings: %+v", got)
	}

	three := int32(3)
	call := callFor(1)
	call.Retry = &pb.RetrySettings{MaxRetries: &three, RetryInterval: durationpb.New(5 * time.Second)}

	if got := w.once(call).env.Retry; got.MaxRetries == nil || *got.MaxRetries != 3 || got.Interval != 5*time.Second {
		t.Errorf("with settings: %+v", got)
	}
}

func TestRecheck(t *testing.T) {
	secret := func(value string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "configs", Name: "creds"}, Data: map[string][]byte{"token": []byte(value)}}
	}
	now := newClock()
	w := newWorld(t, Options{Now: now.Now}, config(1), secret("old"))
	defer w.close()

	w.construct = func(ctx context.Context, s *store) error {
		_, err := s.env.References.SecretKey(ctx, metav1alpha1.SecretKeySelector{Name: "creds", Key: "token"})

		return err
	}

	inFlight, old := w.use(callFor(1))

	if err := w.kube.Update(t.Context(), secret("new")); err != nil {
		t.Fatal(err)
	}

	reads := w.reads.Load()

	now.pass(59 * time.Second)

	if s := w.once(callFor(1)); s != old || w.reads.Load() != reads {
		t.Errorf("within the minute: store %d, %d reads of the API server", s.number, w.reads.Load()-reads)
	}

	now.pass(time.Second)

	next := w.once(callFor(1))
	if next == old {
		t.Fatal("after a minute the changed Secret was not noticed")
	}

	if old.isClosed() {
		t.Error("the old store was closed while a call used it")
	}

	inFlight.Release()
	w.awaitClosed(old)

	reads = w.reads.Load()

	now.pass(time.Minute)

	for range 5 {
		if s := w.once(callFor(1)); s != next {
			t.Errorf("nothing changed, and store %d was made", s.number)
		}
	}

	if got := w.reads.Load() - reads; got != 1 {
		t.Errorf("five calls looked at one reference %d times, not once", got)
	}

	now.pass(time.Minute)

	w.answer = func(client.Object) error { return apierrors.NewServiceUnavailable("away") }

	if s := w.once(callFor(1)); s != next {
		t.Error("the store was given up because the API server did not answer")
	}

	now.pass(-time.Hour)

	w.answer = nil

	if err := w.kube.Update(t.Context(), secret("newest")); err != nil {
		t.Fatal(err)
	}

	if s := w.once(callFor(1)); s == next {
		t.Error("a clock that jumped back stopped the looking")
	}
}

func TestIdleStoresAreClosed(t *testing.T) {
	now := newClock()
	w := newWorld(t, Options{Now: now.Now}, config(1))
	defer w.close()

	otherCall := callFor(1)
	otherCall.AuthenticationNamespace = "team-b"
	thirdCall := callFor(1)
	thirdCall.AuthenticationNamespace = "team-c"

	idle := w.once(callFor(1))
	inFlight, used := w.use(otherCall)

	now.pass(30 * time.Minute)
	w.once(thirdCall)

	if idle.isClosed() {
		t.Error("a store was closed before its time")
	}

	now.pass(4 * time.Minute)
	w.once(thirdCall)
	w.awaitClosed(idle)

	if used.isClosed() {
		t.Error("a store was closed while a call used it")
	}

	if n := w.sessions.Len(); n != 2 {
		t.Errorf("%d stores are kept, not 2", n)
	}

	inFlight.Release()

	if s := w.once(callFor(1)); s == idle {
		t.Error("a closed store was used again")
	}
}

func TestCloseWaitsForUsers(t *testing.T) {
	w := newWorld(t, Options{}, config(1))

	otherCall := callFor(1)
	otherCall.AuthenticationNamespace = "team-b"

	inFlight, used := w.use(callFor(1))
	idle := w.once(otherCall)

	short, cancel := context.WithCancel(t.Context())
	cancel()

	if err := w.sessions.Close(short); err == nil {
		t.Error("closing did not wait for the call in flight")
	}

	w.awaitClosed(idle)

	if used.isClosed() {
		t.Error("a store was closed while a call used it")
	}

	if _, err := w.sessions.Acquire(t.Context(), callFor(1)); provider.AsError(err).Code != codes.Unavailable {
		t.Errorf("a call after closing: %v", err)
	}

	done := make(chan error, 1)

	go func() { done <- w.sessions.Close(context.Background()) }()

	select {
	case err := <-done:
		t.Errorf("closing did not wait for the call in flight: %v", err)
	default:
	}

	inFlight.Release()

	if err := <-done; err != nil || !used.isClosed() {
		t.Errorf("after the call: closed is %v, %v", used.isClosed(), err)
	}

	w.close()
}

func TestCloseWaitsForConstruction(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	begun, proceed := make(chan struct{}), make(chan struct{})
	w.construct = func(context.Context, *store) error {
		close(begun)
		<-proceed

		return nil
	}

	ctx, cancel := context.WithCancel(t.Context())
	acquired := make(chan error, 1)

	go func() {
		_, err := w.sessions.Acquire(ctx, callFor(1))
		acquired <- err
	}()

	<-begun
	cancel()

	if err := <-acquired; err == nil {
		t.Error("the cancelled call got a store")
	}

	done := make(chan error, 1)

	go func() { done <- w.sessions.Close(context.Background()) }()

	w.await("the sessions are closed", func() bool { return w.sessions.Len() == 0 })
	close(proceed)

	if err := <-done; err != nil || !w.all[0].isClosed() {
		t.Errorf("a store without a waiting caller was left open: %v", err)
	}
}

func TestErrorIsNotCached(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	proceed := make(chan struct{})
	w.construct = func(context.Context, *store) error {
		<-proceed

		return provider.InvalidConfig("spec.server: no such server")
	}

	errs := make(chan error, 3)

	for range cap(errs) {
		go func() {
			_, err := w.sessions.Acquire(t.Context(), callFor(1))
			errs <- err
		}()
	}

	w.await("every call waits for the store", func() bool { return w.users() == cap(errs) })
	close(proceed)

	for range cap(errs) {
		if err := <-errs; provider.AsError(err).Reason != pb.ReasonInvalidConfig {
			t.Errorf("a call that waited got %v", err)
		}
	}

	if w.made() != 1 {
		t.Errorf("%d constructions for calls at the same time", w.made())
	}

	w.construct = nil

	if s := w.once(callFor(1)); s.number != 2 {
		t.Errorf("the next call got store %d", s.number)
	}
}

// If all callers have returned before the construction fails, the error is
// discarded: the next call must not return an outdated error.
func TestErrorIsNotKeptForLaterCalls(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	begun, proceed, failed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.construct = func(context.Context, *store) error {
		defer close(failed)

		close(begun)
		<-proceed

		return provider.Unavailable("the backend is away")
	}

	ctx, cancel := context.WithCancel(t.Context())
	acquired := make(chan error, 1)

	go func() {
		_, err := w.sessions.Acquire(ctx, callFor(1))
		acquired <- err
	}()

	<-begun
	cancel()

	if err := <-acquired; provider.AsError(err).Code != codes.Canceled {
		t.Errorf("the caller that went away got %v", err)
	}

	close(proceed)
	<-failed

	w.construct = nil
	w.await("the failure is forgotten", func() bool { return w.sessions.Len() == 0 })

	if s := w.once(callFor(1)); s.number != 2 {
		t.Errorf("the next call got store %d", s.number)
	}
}

func TestCancelledCallerDoesNotCancelForOthers(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	begun, proceed := make(chan struct{}), make(chan struct{})
	w.construct = func(ctx context.Context, _ *store) error {
		close(begun)
		<-proceed

		return ctx.Err()
	}

	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)

	go func() {
		_, err := w.sessions.Acquire(ctx, callFor(1))
		first <- err
	}()

	<-begun

	go func() {
		session, err := w.sessions.Acquire(t.Context(), callFor(1))
		if err == nil {
			session.Release()
		}

		second <- err
	}()

	w.await("both calls wait", func() bool { return w.users() == 2 })
	cancel()

	if err := <-first; provider.AsError(err).Code != codes.Canceled {
		t.Errorf("the cancelled call got %v", err)
	}

	close(proceed)

	if err := <-second; err != nil || w.made() != 1 {
		t.Errorf("the other call got %v, after %d constructions", err, w.made())
	}
}

// The goroutine of a construction recovers panics itself: otherwise a panic would
// terminate the process and with it every other tenant's calls.
func TestConstructorPanics(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	w.construct = func(context.Context, *store) error { panic(errors.New(canary)) }

	_, err := w.sessions.Acquire(t.Context(), callFor(1))
	if typed := provider.AsError(err); err == nil || typed.Code != codes.Internal || typed.Reason != pb.ReasonInternal || strings.Contains(typed.Message, canary) {
		t.Errorf("a constructor that panics: %v", err)
	}

	log := w.logged()
	if strings.Contains(log, canary) || !strings.Contains(log, "*errors.errorString") || !strings.Contains(log, "sessions_test.go") {
		t.Errorf("the log must contain type and location of the panic and never its text:\n%s", log)
	}

	w.construct = nil

	if s := w.once(callFor(1)); s.number != 2 {
		t.Errorf("the next call got store %d", s.number)
	}
}

func TestClosingFails(t *testing.T) {
	for _, test := range []struct {
		name, why string
		closing   func() error
		logged    string
	}{
		{name: "error", why: "a login that could not be revoked is worth a line", closing: func() error { return errors.New("no route") }, logged: "no route"},
		{name: "panic", why: "as in the constructor, no caller recovers", closing: func() error { panic(canary) }, logged: "panic"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Options{}, config(1))

			w.once(callFor(1)).closing = test.closing
			w.close()

			if log := w.logged(); !strings.Contains(log, test.logged) || strings.Contains(log, canary) {
				t.Errorf("%s: the log:\n%s", test.why, log)
			}
		})
	}
}

func TestDiscard(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	first, old := w.use(callFor(1))
	second, _ := w.use(callFor(1))

	// Two calls may observe at the same time that the login has expired.
	first.Discard()

	next := w.once(callFor(1))

	second.Discard()

	if s := w.once(callFor(1)); next == old || s != next {
		t.Errorf("after discarding store %d the calls got %d and %d", old.number, next.number, s.number)
	}

	first.Release()

	if old.isClosed() {
		t.Error("the discarded store was closed while a call used it")
	}

	second.Release()
	w.awaitClosed(old)
}

func TestConfigErrors(t *testing.T) {
	type fault struct {
		Code   codes.Code
		Reason string
	}

	configMaps := schema.GroupResource{Resource: "configmaps"}

	for _, test := range []struct {
		name, why string
		change    func(*pb.CallContext)
		answer    func(client.Object) error
		want      fault
		text      string
	}{
		{
			name: "kind that is not served", why: "the operator may have it from an older build",
			change: func(c *pb.CallContext) { c.Config.Kind = "Vault" },
			want:   fault{codes.FailedPrecondition, pb.ReasonInvalidConfig}, text: "does not serve Vault of v1",
		},
		{
			name: "other version of the kind", why: "the kind's name alone does not say what it is",
			change: func(c *pb.CallContext) { c.Config.ApiVersion = "example.com/v1" },
			want:   fault{codes.FailedPrecondition, pb.ReasonInvalidConfig}, text: "does not serve ConfigMap of example.com/v1",
		},
		{
			name: "missing", why: "a missing config is no missing secret: targets must not be deleted for it",
			change: func(c *pb.CallContext) { c.Config.Name = "none" },
			want:   fault{codes.FailedPrecondition, pb.ReasonInvalidConfig}, text: `ConfigMap "none" does not exist in namespace "configs"`,
		},
		{
			name: "forbidden", why: "the message must say that the provider lacks a permission",
			answer: func(client.Object) error { return apierrors.NewForbidden(configMaps, "backend", errors.New("RBAC")) },
			want:   fault{codes.FailedPrecondition, pb.ReasonInvalidConfig}, text: "the provider's ServiceAccount may not read",
		},
		{
			name: "API server away", why: "no answer is no verdict: it is tried again",
			answer: func(client.Object) error { return apierrors.NewServiceUnavailable("away") },
			want:   fault{codes.Unavailable, pb.ReasonUnavailable}, text: "cannot read",
		},
		{
			name: "another object of that name", why: "what the operator has checked is another config",
			change: func(c *pb.CallContext) { c.Config.Uid = "other" },
			want:   fault{codes.Unavailable, pb.ReasonConfigOutdated}, text: "another object",
		},
		{
			name: "older than wanted", why: "the provider reads from an API server that lags: try again, and never use what is outdated",
			change: func(c *pb.CallContext) { c.Config.Generation = 8 },
			want:   fault{codes.Unavailable, pb.ReasonConfigOutdated}, text: "is seen at generation 7, the call wants 8",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{}, config(7))
				defer w.close()

				w.answer = test.answer
				call := callFor(7)

				if test.change != nil {
					test.change(call)
				}

				began := time.Now()
				_, err := w.sessions.Acquire(t.Context(), call)

				if err == nil {
					t.Fatalf("%s: a store was made", test.why)
				}

				typed := provider.AsError(err)
				if diff := cmp.Diff(test.want, fault{typed.Code, typed.Reason}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", test.why, diff)
				}

				if !strings.Contains(typed.Message, test.text) {
					t.Errorf("%s: %q does not say %q", test.why, typed.Message, test.text)
				}

				if took := time.Since(began); took > outdatedWait+2*outdatedPoll {
					t.Errorf("%s: it took %s", test.why, took)
				}

				if w.made() != 0 {
					t.Errorf("%s: a store was made", test.why)
				}
			})
		})
	}
}

// A config that is behind for a moment is waited for.
func TestConfigIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, config(1))
		defer w.close()

		go func() {
			time.Sleep(time.Second)

			if err := w.kube.Update(context.Background(), config(3)); err != nil {
				t.Error(err)
			}
		}()

		if s := w.once(callFor(2)); s.config.Generation != 3 {
			t.Errorf("the store was created from generation %d", s.config.Generation)
		}

		if s := w.once(callFor(3)); s.number != 1 {
			t.Error("the store's own generation, newer than the one wanted, was not remembered")
		}
	})
}

// A constructor that hangs ends with its context, long after its caller.
func TestConstructionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, config(1))
		defer w.close()

		began := time.Now()

		w.construct = func(ctx context.Context, _ *store) error {
			<-ctx.Done()

			return ctx.Err()
		}

		_, err := w.sessions.Acquire(t.Context(), callFor(1))
		if provider.AsError(err).Code != codes.DeadlineExceeded || time.Since(began) != constructTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// For the race detector: everything at once, and no store is used when closed
// or left open.
func TestStress(t *testing.T) {
	now := newClock()
	w := newWorld(t, Options{Now: now.Now, Recheck: time.Second, Idle: 2 * time.Second}, config(1))

	var wait sync.WaitGroup

	for i := range 8 {
		wait.Go(func() {
			for j := range 100 {
				call := callFor(1)
				call.AuthenticationNamespace = strconv.Itoa(j % 3)

				session, err := w.sessions.Acquire(t.Context(), call)
				if err != nil {
					t.Errorf("cannot acquire: %v", err)

					return
				}

				if s, _ := session.Instance.(*store); s.isClosed() {
					t.Errorf("store %d was used after it was closed", s.number)
				}

				if (i+j)%7 == 0 {
					session.Discard()
				}

				now.pass(50 * time.Millisecond)
				session.Release()
			}
		})
	}

	wait.Wait()
	w.close()

	for _, s := range w.all {
		if n := s.closings.Load(); n != 1 {
			t.Errorf("store %d was closed %d times", s.number, n)
		}
	}
}

// What the process may, every user of a config that may use its identity may.
func TestOwnIdentity(t *testing.T) {
	for _, test := range []struct {
		name, why string
		allowed   []string
		want      bool
	}{
		{"none", "by default no namespace may use it", nil, false},
		{"the config's namespace", "", []string{"other", "configs"}, true},
		{"another namespace", "names are compared whole", []string{"config", "configs-b"}, false},
		{"all", "", []string{"*"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Options{OwnIdentity: test.allowed}, config(1))
			defer w.close()

			if s := w.once(callFor(1)); s.env.OwnIdentity != test.want {
				t.Errorf("%s: OwnIdentity is %t", test.why, s.env.OwnIdentity)
			}
		})
	}
}

// A watch must not go on with a login or a config of yesterday.
func TestEndedWhenDiscarded(t *testing.T) {
	w := newWorld(t, Options{}, config(1))
	defer w.close()

	session, _ := w.use(callFor(1))
	defer session.Release()

	select {
	case <-session.Ended():
		t.Fatal("a store in use was closed")
	default:
	}

	other, _ := w.use(callFor(1))
	other.Discard()
	other.Release()

	select {
	case <-session.Ended():
	default:
		t.Error("a store that was discarded has not ended")
	}
}

// The last call may have been the last for days: its login ends all the same.
func TestUnusedStoresGoWithoutACall(t *testing.T) {
	w := newWorld(t, Options{Idle: 50 * time.Millisecond}, config(1))
	defer w.close()

	w.awaitClosed(w.once(callFor(1)))
}
