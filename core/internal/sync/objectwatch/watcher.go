// Package objectwatch watches single objects that ExternalSecrets name: those
// that templates are read from, and target Secrets that do not exist yet. It
// runs one watch per object, so that the other objects of a cluster cost
// nothing.
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

	"github.com/external-secrets/eso/core/internal/subscription"
)

// listTimeout is how long the first list of an object may take before Content
// returns an error other than ErrPending.
const listTimeout = 10 * time.Second

// ErrPending means that a watch has just started and has not listed anything
// yet. Subscribers are notified when it has.
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

// String names the object, for messages.
func (k Key) String() string {
	return fmt.Sprintf("%s %q in namespace %q", k.Kind, k.Name, k.Namespace)
}

// Watcher watches the objects that have subscribers.
type Watcher struct {
	objects  kubernetes.Interface
	metadata metadata.Interface
	changed  func(Key)
	now      func() time.Time
	// list returns what lists and watches an object.
	list    func(Key) (cache.ListerWatcher, runtime.Object)
	watches *subscription.Watches[Key, types.NamespacedName, *informer]
}

// Subscription is the objects that one ExternalSecret has subscribed to.
type Subscription = subscription.Subscription[Key, types.NamespacedName, *informer]

// informer of one object.
type informer struct {
	store      cache.Store
	controller cache.Controller
	started    time.Time
}

// New returns a watcher of nothing. changed is called whenever a watched object
// has been listed, is created, changes or is deleted; it must not block.
func New(objects kubernetes.Interface, meta metadata.Interface, changed func(Key)) *Watcher {
	w := &Watcher{objects: objects, metadata: meta, changed: changed, now: time.Now}
	w.list = w.listWatch
	w.watches = subscription.New(subscription.Options[Key, types.NamespacedName, *informer]{New: w.informer, Run: w.run})

	return w
}

// Subscribe returns a subscription of an ExternalSecret to no object yet.
func (w *Watcher) Subscribe(subscriber types.NamespacedName) *Subscription {
	return w.watches.Subscribe(subscriber)
}

// Subscribers of an object.
func (w *Watcher) Subscribers(key Key) []types.NamespacedName { return w.watches.Subscribers(key) }

// Stop ends all watches and waits until they have ended.
func (w *Watcher) Stop() { w.watches.Stop() }

// Content returns the content of a watched object; ok reports whether it exists.
// It does not wait: objects that the operator may not read would block every
// worker. Until the first list the error is ErrPending.
func (w *Watcher) Content(key Key) (content map[string]string, ok bool, err error) {
	entry, ok := w.watches.Watch(key)
	if !ok {
		return nil, false, fmt.Errorf("cannot read %s: it is not watched", key)
	}

	switch {
	case entry.controller.HasSynced():
	case w.now().Sub(entry.started) < listTimeout:
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

// Digest returns a short digest of a content.
func Digest(content map[string]string) string {
	sum := sha256.New()

	for _, name := range slices.Sorted(maps.Keys(content)) {
		fmt.Fprintf(sum, "%d %s%d %s", len(name), name, len(content[name]), content[name])
	}

	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// informer returns the informer of an object.
func (w *Watcher) informer(key Key) *informer {
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

	return &informer{store: store, controller: controller, started: w.now()}
}

// run runs an informer.
func (w *Watcher) run(ctx context.Context, key Key, i *informer) {
	var listed sync.WaitGroup

	// That there is no object is a result, too, and one that is no event.
	listed.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), i.controller.HasSynced) {
			w.changed(key)
		}
	})

	i.controller.RunWithContext(ctx)
	listed.Wait()
}

// strip removes metadata that is not used.
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
