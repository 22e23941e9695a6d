package secretstore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var errForbidden = errors.New("forbidden")

// listing is a cache whose informers come when the test says so.
type listing struct {
	cache.Cache

	asked, removed atomic.Int32
	answer         chan error
}

func (l *listing) GetInformer(ctx context.Context, _ client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	l.asked.Add(1)

	select {
	case err := <-l.answer:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listing) RemoveInformer(context.Context, client.Object) error {
	l.removed.Add(1)

	return nil
}

func configs(t *testing.T) (*Configs, *listing, schema.GroupVersionKind) {
	t.Helper()

	gvk := schema.GroupVersionKind{Group: "acme.example.com", Version: "v1", Kind: "Acme"}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(gvk, meta.RESTScopeNamespace)

	l := &listing{answer: make(chan error)}

	w := NewConfigs(l, mapper)
	t.Cleanup(w.watches.Stop)

	return w, l, gvk
}

// Of a kind that many stores name at the same time there is one watch.
func TestFirstWatchIsOne(t *testing.T) {
	t.Parallel()

	w, l, gvk := configs(t)
	errs := make(chan error, 20)

	for range cap(errs) {
		go func() { errs <- w.Watch(t.Context(), gvk) }()
	}

	l.answer <- nil

	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}

	if err := w.Watch(t.Context(), gvk); err != nil || l.asked.Load() != 1 {
		t.Errorf("asked %d times: %v", l.asked.Load(), err)
	}
}

// A kind that may not be listed blocks one worker, the others for a moment, and
// none once that is known.
func TestKindThatMayNotBeListed(t *testing.T) {
	t.Parallel()

	w, l, gvk := configs(t)
	errs := make(chan error, 20)
	began := time.Now()

	for range cap(errs) {
		go func() { errs <- w.Watch(t.Context(), gvk) }()
	}

	for range cap(errs) - 1 {
		if err := <-errs; !errors.Is(err, errStarting) {
			t.Errorf("err = %v", err)
		}
	}

	if waited := time.Since(began); waited > 10*maxWait {
		t.Errorf("the others waited %s", waited)
	}

	l.answer <- errForbidden

	if err := <-errs; !errors.Is(err, errForbidden) {
		t.Errorf("err = %v", err)
	}

	for range 2 {
		if err := w.Watch(t.Context(), gvk); !errors.Is(err, errForbidden) || !strings.Contains(err.Error(), "list and watch of acmes") {
			t.Errorf("err = %v", err)
		}
	}

	if l.asked.Load() != 1 || l.removed.Load() != 1 {
		t.Errorf("asked %d times, removed %d informers", l.asked.Load(), l.removed.Load())
	}
}

// A kind that the cluster does not have is known as soon as it has.
func TestKindThatComes(t *testing.T) {
	t.Parallel()

	w, l, gvk := configs(t)
	absent := gvk
	absent.Kind = "Later"

	for range 2 {
		if err := w.Watch(t.Context(), absent); !meta.IsNoMatchError(err) {
			t.Fatalf("err = %v", err)
		}
	}

	mapper, _ := w.mapper.(*meta.DefaultRESTMapper)
	mapper.Add(absent, meta.RESTScopeNamespace)

	done := make(chan error, 1)
	go func() { done <- w.Watch(t.Context(), absent) }()

	l.answer <- nil

	if err := <-done; err != nil {
		t.Error(err)
	}
}
