package tracker

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

const patience = 20 * time.Second

func object(name string, status metav1.ConditionStatus) *esv1.ExternalSecret {
	return &esv1.ExternalSecret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Status:     esv1.ExternalSecretStatus{Conditions: []esv1.Condition{{Type: esv1.ConditionReady, Status: status, Message: "a message"}}},
	}
}

func start(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*Tracker, client.WithWatch) {
	t.Helper()

	known := runtime.NewScheme()
	if err := esv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}

	c := fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()

	tracker, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(tracker.Stop)

	return tracker, c
}

func TestExpect(t *testing.T) {
	tracker, c := start(t, interceptor.Funcs{}, object("a", metav1.ConditionTrue), object("b", metav1.ConditionFalse))

	one := tracker.Expect("one to be Ready", 1, Ready)
	if _, err := one.Wait(t.Context(), patience); err != nil {
		t.Errorf("what holds already: %v", err)
	}

	two := tracker.Expect("two to be Ready", 2, Ready)

	_, err := two.Wait(t.Context(), 10*time.Millisecond)
	if err == nil {
		t.Fatal("two are Ready")
	}

	for _, want := range []string{"two to be Ready", "1 of 2", "ns/b", "a message"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}

	three := tracker.Expect("three to be Ready", 3, Ready)
	began := time.Now()

	for _, change := range []func() error{
		func() error { return c.Create(t.Context(), object("c", metav1.ConditionTrue)) },
		func() error { return c.Delete(t.Context(), object("a", metav1.ConditionTrue)) },
		func() error { return c.Create(t.Context(), object("d", metav1.ConditionTrue)) },
		func() error { return c.Create(t.Context(), object("e", metav1.ConditionTrue)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}

	at, err := three.Wait(t.Context(), patience)
	if err != nil || at.Before(began) {
		t.Errorf("met at %s, %v", at, err)
	}

	if n := tracker.Count(Failing); n != 1 {
		t.Errorf("%d are failing", n)
	}

	if state := tracker.Get(types.NamespacedName{Namespace: "ns", Name: "e"}); !Ready(state) {
		t.Errorf("e is %+v", state)
	}
}

// A watch that ends, as all do after a while, must not lose what happens until
// the next one.
func TestWatchThatEnds(t *testing.T) {
	first := make(chan watch.Interface, 1)
	tracker, c := start(t, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			events, err := c.Watch(ctx, list, options...)

			select {
			case first <- events:
			default:
			}

			return events, err
		},
	}, object("a", metav1.ConditionTrue))

	(<-first).Stop()

	if err := c.Create(t.Context(), object("b", metav1.ConditionTrue)); err != nil {
		t.Fatal(err)
	}

	if err := c.Delete(t.Context(), object("a", metav1.ConditionTrue)); err != nil {
		t.Fatal(err)
	}

	if _, err := tracker.Expect("b to be Ready", 1, func(state State) bool { return state.Name.Name == "b" && Ready(state) }).Wait(t.Context(), patience); err != nil {
		t.Error(err)
	}

	// The deletion is observed after the creation.
	known := func() int { return tracker.Count(func(State) bool { return true }) }
	for deadline := time.Now().Add(patience); known() != 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}

	if n := known(); n != 1 {
		t.Errorf("%d objects are known, one of them is gone", n)
	}
}

func TestStateOf(t *testing.T) {
	es := object("a", metav1.ConditionTrue)
	es.Generation = 2

	if state := stateOf(es); Ready(state) || Failing(state) {
		t.Errorf("a condition of an earlier generation counts: %+v", state)
	}

	es.Status.Conditions[0].ObservedGeneration = 2
	if !Ready(stateOf(es)) {
		t.Error("it is not Ready")
	}
}

func TestRefreshes(t *testing.T) {
	tracker, _ := start(t, interceptor.Funcs{})
	name := types.NamespacedName{Name: "a"}
	began := time.Unix(1000, 0)

	tracker.observe(State{Name: name}, false)
	tracker.observe(State{Name: name, Refreshed: began}, false)
	tracker.observe(State{Name: name, Refreshed: began, Message: "other"}, false)
	tracker.observe(State{Name: name, Refreshed: began.Add(time.Second)}, false)

	if n := tracker.Refreshes(); n != 2 {
		t.Errorf("%d refreshes", n)
	}
}

func TestFailures(t *testing.T) {
	tracker, _ := start(t, interceptor.Funcs{})
	name := types.NamespacedName{Name: "a"}

	for _, ready := range []metav1.ConditionStatus{"", metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionTrue, metav1.ConditionFalse} {
		tracker.observe(State{Name: name, Ready: ready}, false)
	}

	if n := tracker.Failures(); n != 2 {
		t.Errorf("%d failures", n)
	}
}
