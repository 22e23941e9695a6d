package tracker

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// retryPause lies between two watches.
const retryPause = 200 * time.Millisecond

// State of an ExternalSecret as the watch showed it last.
type State struct {
	Name types.NamespacedName
	// Ready is the status of the condition Ready at the present generation;
	// empty where there is none.
	Ready metav1.ConditionStatus
	// Message of the condition.
	Message string
	// Refreshed is when the last successful sync began.
	Refreshed time.Time
	// SyncedVersion changes when a change of the object has been synced.
	SyncedVersion string
}

func stateOf(es *esv1.ExternalSecret) State {
	state := State{
		Name:          client.ObjectKeyFromObject(es),
		Refreshed:     es.Status.RefreshTime.Time,
		SyncedVersion: es.Status.SyncedResourceVersion,
	}

	for _, condition := range es.Status.Conditions {
		if condition.Type == esv1.ConditionReady && condition.ObservedGeneration == es.Generation {
			state.Ready, state.Message = condition.Status, condition.Message
		}
	}

	return state
}

// Ready reports whether an ExternalSecret is Ready.
func Ready(state State) bool { return state.Ready == metav1.ConditionTrue }

// Failing reports whether the last sync of an ExternalSecret failed.
func Failing(state State) bool { return state.Ready == metav1.ConditionFalse }

// Tracker follows ExternalSecrets.
type Tracker struct {
	client client.WithWatch
	cancel context.CancelFunc
	done   chan struct{}

	mu        sync.Mutex
	states    map[types.NamespacedName]State
	expected  map[*Expectation]bool
	refreshes int
	failures  int
}

// Start follows the ExternalSecrets of a cluster until Stop.
func Start(ctx context.Context, c client.WithWatch) (*Tracker, error) {
	// Ctx bounds the start alone.
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := &Tracker{
		client: c, cancel: cancel, done: make(chan struct{}),
		states: map[types.NamespacedName]State{}, expected: map[*Expectation]bool{},
	}

	events, err := t.open(following)
	if err != nil {
		cancel()

		return nil, err
	}

	go t.follow(following, events)

	return t, nil
}

// Stop ends the following.
func (t *Tracker) Stop() {
	t.cancel()
	<-t.done
}

// open takes stock and begins a watch.
func (t *Tracker) open(ctx context.Context) (watch.Interface, error) {
	var list esv1.ExternalSecretList
	if err := t.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("cannot list ExternalSecrets: %w", err)
	}

	t.replace(list.Items)

	options := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}

	events, err := t.client.Watch(ctx, &esv1.ExternalSecretList{}, options)
	if err != nil {
		return nil, fmt.Errorf("cannot watch ExternalSecrets: %w", err)
	}

	return events, nil
}

func (t *Tracker) follow(ctx context.Context, events watch.Interface) {
	defer close(t.done)

	for {
		t.consume(ctx, events)
		events.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryPause):
			}

			var err error
			if events, err = t.open(ctx); err == nil {
				break
			}
		}
	}
}

// consume returns when a watch has ended, as each does after a while, or has
// to begin anew.
func (t *Tracker) consume(ctx context.Context, events watch.Interface) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events.ResultChan():
			es, ok := event.Object.(*esv1.ExternalSecret)
			if !ok {
				return
			}

			t.observe(stateOf(es), event.Type == watch.Deleted)
		}
	}
}

// replace takes over a whole list.
func (t *Tracker) replace(items []esv1.ExternalSecret) {
	listed := map[types.NamespacedName]bool{}

	for i := range items {
		state := stateOf(&items[i])
		listed[state.Name] = true
		t.observe(state, false)
	}

	t.mu.Lock()
	states := maps.Clone(t.states)
	t.mu.Unlock()

	for name, state := range states {
		if !listed[name] {
			t.observe(state, true)
		}
	}
}

func (t *Tracker) observe(state State, deleted bool) {
	now := time.Now()

	t.mu.Lock()
	defer t.mu.Unlock()

	if deleted {
		delete(t.states, state.Name)
	} else {
		if was, known := t.states[state.Name]; known && state.Refreshed.After(was.Refreshed) {
			t.refreshes++
		}

		if Failing(state) && !Failing(t.states[state.Name]) {
			t.failures++
		}

		t.states[state.Name] = state
	}

	for x := range t.expected {
		x.observe(state, deleted, now)
	}
}

// Refreshes is how often a refresh time has moved on so far. As the API keeps
// whole seconds, several within one second are one.
func (t *Tracker) Refreshes() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.refreshes
}

// Failures is how often an ExternalSecret has become not Ready so far.
func (t *Tracker) Failures() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.failures
}

// Count is how many ExternalSecrets are as described.
func (t *Tracker) Count(holds func(State) bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()

	n := 0

	for _, state := range t.states {
		if holds(state) {
			n++
		}
	}

	return n
}

// Get gives the state of one ExternalSecret.
func (t *Tracker) Get(name types.NamespacedName) State {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.states[name]
}

// Expect begins to wait for so many ExternalSecrets to be as described at the
// same time. What stands in errors for what is expected. The caller must end it
// with Wait.
func (t *Tracker) Expect(what string, want int, holds func(State) bool) *Expectation {
	x := &Expectation{
		tracker: t, what: what, want: want, holds: holds,
		holding: map[types.NamespacedName]time.Time{}, done: make(chan struct{}),
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	now := time.Now()
	for _, state := range t.states {
		x.observe(state, false, now)
	}

	t.expected[x] = true

	return x
}

// Expectation of how ExternalSecrets will be.
type Expectation struct {
	tracker *Tracker
	what    string
	want    int
	holds   func(State) bool

	// The rest is the tracker's mutex's.
	holding  map[types.NamespacedName]time.Time
	last     State // That did not hold.
	done     chan struct{}
	met      bool
	metAt    time.Time
	lastSeen time.Time
}

// observe runs under the tracker's mutex.
func (x *Expectation) observe(state State, deleted bool, now time.Time) {
	if x.met {
		return
	}

	if deleted || !x.holds(state) {
		delete(x.holding, state.Name)

		if !deleted {
			x.last, x.lastSeen = state, now
		}

		return
	}

	if _, already := x.holding[state.Name]; !already {
		x.holding[state.Name] = now
	}

	if len(x.holding) >= x.want {
		x.met, x.metAt = true, now
		close(x.done)
	}
}

// Wait waits until it is met, and gives the moment.
func (x *Expectation) Wait(ctx context.Context, limit time.Duration) (time.Time, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()

	var err error

	select {
	case <-x.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("not after %s", limit)
	}

	x.tracker.mu.Lock()
	defer x.tracker.mu.Unlock()

	delete(x.tracker.expected, x)

	if x.met {
		return x.metAt, nil
	}

	text := fmt.Sprintf("cannot wait for %s: %v; %d of %d are so", x.what, err, len(x.holding), x.want)
	if !x.lastSeen.IsZero() {
		text += fmt.Sprintf("; not, for example, %s: Ready=%q %s", x.last.Name, x.last.Ready, x.last.Message)
	}

	return time.Time{}, fmt.Errorf("%s", text)
}
