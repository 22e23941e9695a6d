// Package objectwatch watches single objects that ExternalSecrets name: those
// that templates are read from, and Secrets that are waited for. One watch per
// object, so that the other objects of a cluster cost nothing.
package objectwatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// firstLook is how long an object's first answer may take before its want is an
// error.
const firstLook = 10 * time.Second

// ErrPending says that something has just begun to be watched and is not known
// yet. Whoever is told so is told, too, when it is.
var ErrPending = errors.New("the API server has not answered yet")

// Kind of what is watched.
type Kind string

const (
	// ConfigMap with its content.
	ConfigMap Kind = "ConfigMap"
	// Secret with its content.
	Secret Kind = "Secret"
	// Target is a Secret of which only the metadata is watched.
	Target Kind = "target"
)

// Key names an object.
type Key struct {
	Kind            Kind
	Namespace, Name string
}

// String names the object for people.
func (k Key) String() string {
	return fmt.Sprintf("%s %q in namespace %q", k.Kind, k.Name, k.Namespace)
}

// Watcher watches the objects that somebody has asked for.
type Watcher struct {
	objects  kubernetes.Interface
	metadata metadata.Interface
	changed  func(Key)
	now      func() time.Time
	// list gives what an object is listed and watched by.
	list func(Key) (cache.ListerWatcher, runtime.Object)

	mu      sync.Mutex
	running sync.WaitGroup
	stopped bool
	watches map[Key]*watched
	wanted  map[types.NamespacedName][]Key
}

type watched struct {
	owners map[types.NamespacedName]bool
	store  cache.Store
	synced cache.InformerSynced
	stop   context.CancelFunc
	began  time.Time
}

// New makes a watcher of nothing. changed is called whenever an object that is
// watched becomes known, is made, changes or goes; it must not block.
func New(objects kubernetes.Interface, meta metadata.Interface, changed func(Key)) *Watcher {
	w := &Watcher{objects: objects, metadata: meta, changed: changed, now: time.Now, watches: map[Key]*watched{}, wanted: map[types.NamespacedName][]Key{}}
	w.list = w.listWatch

	return w
}

// Want makes keys all that owner has watched. A watch that nobody wants any
// more ends.
func (w *Watcher) Want(owner types.NamespacedName, keys ...Key) {
	w.mu.Lock()
	defer w.mu.Unlock()

	former := w.wanted[owner]
	if slices.Equal(former, keys) || w.stopped {
		return
	}

	for _, key := range keys {
		w.watch(key).owners[owner] = true
	}

	for _, key := range former {
		if slices.Contains(keys, key) {
			continue
		}

		entry := w.watches[key]
		delete(entry.owners, owner)

		if len(entry.owners) == 0 {
			entry.stop()
			delete(w.watches, key)
		}
	}

	if len(keys) == 0 {
		delete(w.wanted, owner)
	} else {
		w.wanted[owner] = keys
	}
}

// Stop ends all watches and waits for their end.
func (w *Watcher) Stop() {
	w.mu.Lock()

	w.stopped = true

	for key, entry := range w.watches {
		entry.stop()
		delete(w.watches, key)
	}

	w.mu.Unlock()
	w.running.Wait()
}

// Owners of a watch.
func (w *Watcher) Owners(key Key) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()

	entry, ok := w.watches[key]
	if !ok {
		return nil
	}

	return slices.Collect(maps.Keys(entry.owners))
}

// Content of an object that is watched; ok tells whether it exists. It does not
// wait: what the operator may not read would keep every worker waiting. At first
// the error is an ErrPending.
func (w *Watcher) Content(key Key) (content map[string]string, ok bool, err error) {
	w.mu.Lock()
	entry, watching := w.watches[key]
	w.mu.Unlock()

	if !watching {
		return nil, false, fmt.Errorf("cannot read %s: it is not watched", key)
	}

	switch {
	case entry.synced():
	case w.now().Sub(entry.began) < firstLook:
		return nil, false, fmt.Errorf("cannot read %s: %w", key, ErrPending)
	default:
		return nil, false, fmt.Errorf("cannot read %s: the API server does not answer, or does not let the operator list and watch it", key)
	}

	stored := entry.store.List()
	if len(stored) == 0 {
		return nil, false, nil
	}

	switch object := stored[0].(type) {
	case *corev1.ConfigMap:
		return object.Data, true, nil
	case *corev1.Secret:
		content = make(map[string]string, len(object.Data))
		for name, value := range object.Data {
			content[name] = string(value)
		}

		return content, true, nil
	default:
		return nil, true, nil
	}
}

// Digest of a content, to tell one from another.
func Digest(content map[string]string) string {
	sum := sha256.New()

	for _, name := range slices.Sorted(maps.Keys(content)) {
		fmt.Fprintf(sum, "%d %s%d %s", len(name), name, len(content[name]), content[name])
	}

	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// watch gives the watch of an object, and begins it where there is none.
func (w *Watcher) watch(key Key) *watched {
	if entry, ok := w.watches[key]; ok {
		return entry
	}

	list, object := w.list(key)
	notify := func(any) { w.changed(key) }

	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: list,
		ObjectType:    object,
		Transform:     strip,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: notify, UpdateFunc: func(_, after any) { notify(after) }, DeleteFunc: notify,
		},
	})

	ctx, stop := context.WithCancel(context.Background())
	entry := &watched{owners: map[types.NamespacedName]bool{}, store: store, synced: controller.HasSynced, stop: stop, began: w.now()}
	w.watches[key] = entry

	w.running.Go(func() { controller.RunWithContext(ctx) })
	// That there is no object is an answer, too, and one that changes nothing.
	w.running.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), entry.synced) {
			w.changed(key)
		}
	})

	return entry
}

// strip leaves out what nobody reads.
func strip(object any) (any, error) {
	if accessor, ok := object.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
		accessor.SetAnnotations(nil)
	}

	return object, nil
}

func (w *Watcher) listWatch(key Key) (cache.ListerWatcher, runtime.Object) {
	only := func(options metav1.ListOptions) metav1.ListOptions {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String()

		return options
	}

	switch key.Kind {
	case ConfigMap:
		client := w.objects.CoreV1().ConfigMaps(key.Namespace)

		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, only(options))
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, only(options))
			},
		}, &corev1.ConfigMap{}
	case Secret:
		client := w.objects.CoreV1().Secrets(key.Namespace)

		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, only(options))
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, only(options))
			},
		}, &corev1.Secret{}
	case Target:
		fallthrough
	default:
		client := w.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(key.Namespace)

		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, only(options))
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return client.Watch(ctx, only(options))
			},
		}, &metav1.PartialObjectMetadata{}
	}
}
