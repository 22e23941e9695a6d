package objectwatch

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

var (
	owner = types.NamespacedName{Namespace: "ns", Name: "app"}
	there = Key{Kind: ConfigMap, Namespace: "ns", Name: "there"}
	none  = Key{Kind: ConfigMap, Namespace: "ns", Name: "none"}
)

// eventually waits for what goroutines do.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()

	for deadline := time.Now().Add(10 * time.Second); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never happens: " + what)
		}
	}
}

// cluster has one ConfigMap, and may refuse to list it.
type cluster struct{ refuses atomic.Bool }

func (c *cluster) list(key Key) (cache.ListerWatcher, runtime.Object) {
	return &plain{cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ConfigMapList{}
			if key == there {
				list.Items = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "there"}, Data: map[string]string{"a": "1"}}}
			}

			if c.refuses.Load() {
				return nil, apierrors.NewForbidden(corev1.Resource("configmaps"), key.Name, errors.New("no"))
			}

			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}}, &corev1.ConfigMap{}
}

// plain lists before it watches.
type plain struct{ cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks for it.
func (*plain) IsWatchListSemanticsUnSupported() bool { return true }

// Content does not block: the owner of an object is notified when its state is
// known, even if the object does not exist.
func TestContentDoesNotWait(t *testing.T) {
	t.Parallel()

	notified := make(chan Key, 100)

	w := New(nil, nil, func(key Key) { notified <- key })
	w.list = (&cluster{}).list

	defer w.Stop()

	if _, _, err := w.Content(there); err == nil || errors.Is(err, ErrPending) {
		t.Errorf("what is not watched will never be known: %v", err)
	}

	w.Subscribe(owner).Replace(there, none)

	known := map[Key]bool{}
	for !known[there] || !known[none] {
		select {
		case key := <-notified:
			if _, _, err := w.Content(key); err != nil {
				t.Errorf("%s is notified of, and not known: %v", key, err)
			}

			known[key] = true
		case <-time.After(10 * time.Second):
			t.Fatalf("notified of %v only", known)
		}
	}

	if content, ok, err := w.Content(there); err != nil || !ok || content["a"] != "1" {
		t.Errorf("content %v, %t, %v", content, ok, err)
	}

	if _, ok, err := w.Content(none); err != nil || ok {
		t.Errorf("what does not exist: %t, %v", ok, err)
	}
}

// A kind that the operator is not allowed to read must not block a worker, neither
// at first nor later.
func TestContentOfWhatMayNotBeRead(t *testing.T) {
	t.Parallel()

	var (
		api      cluster
		notified atomic.Bool
	)

	api.refuses.Store(true)

	w := New(nil, nil, func(Key) { notified.Store(true) })
	w.list = api.list

	defer w.Stop()

	began := time.Now()
	clock := began
	w.now = func() time.Time { return clock }

	w.Subscribe(owner).Replace(there)

	if _, _, err := w.Content(there); !errors.Is(err, ErrPending) {
		t.Errorf("at first it is not known yet: %v", err)
	}

	clock = clock.Add(listTimeout)

	for range 3 {
		if _, _, err := w.Content(there); err == nil || errors.Is(err, ErrPending) {
			t.Errorf("later that is an error: %v", err)
		}
	}

	if took := time.Since(began); took > time.Second {
		t.Errorf("five looks took %s", took)
	}

	if notified.Load() {
		t.Error("its owner is notified that it is known")
	}

	api.refuses.Store(false)
	eventually(t, "its owner is notified when it may be read", notified.Load)

	if _, _, err := w.Content(there); err != nil {
		t.Error(err)
	}
}
