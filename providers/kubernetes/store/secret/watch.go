package secret

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/internal/cluster"
)

const (
	// watchSeconds is the requested duration of a watch; the next one continues
	// where it ended.
	watchSeconds = 600
	// maxFailures is after how many consecutive failures a watch ends.
	maxFailures = 5
	patience    = time.Second
	// shortWatch is the minimum duration of a watch that ended regularly.
	shortWatch = 5 * time.Second
)

// errGone means that the API server does not have the events since the last one
// any more.
var errGone = errors.New("the events since then are no longer available")

// Watch reports changes from a watch of the API server. It receives the metadata
// of Secrets and no values.
func (s *Store) Watch(ctx context.Context, keys []string, report func(provider.Change) error) error {
	for _, key := range keys {
		if err := checkName(key); err != nil {
			return err
		}
	}

	w := &watcher{secrets: s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(s.namespace), what: "Secrets in namespace \"" + s.namespace + "\"", keys: keys, report: report, patience: s.patience}

	for failures := 0; ; {
		began := time.Now()
		err := w.round(ctx)

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errGone):
			w.from = ""
		case err != nil && !isTransient(err):
			return err
		}

		// An API server keeps a watch open for minutes. After one that ends at
		// once there is a pause.
		switch lasted := time.Since(began); {
		case lasted > time.Minute:
			failures = 0

			if err == nil {
				continue
			}
		case err == nil && lasted > shortWatch:
			continue
		}

		if failures++; failures > maxFailures {
			if err == nil {
				err = provider.Unavailable("cannot watch %s: the server ends each watch at once", w.what)
			}

			return err
		}

		select {
		case <-time.After(w.patience*time.Duration(failures) + rand.N(w.patience)): //nolint:gosec // not for secrets
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isTransient reports whether another attempt may succeed.
func isTransient(err error) bool {
	var typed *provider.Error

	return errors.As(err, &typed) && (typed.Code == codes.Unavailable || typed.Code == codes.ResourceExhausted) ||
		errors.Is(err, context.DeadlineExceeded)
}

// watcher is one Watch.
type watcher struct {
	secrets metadata.ResourceInterface
	what    string
	keys    []string
	report  func(provider.Change) error
	// patience is the interval before another round after one that ended early.
	patience time.Duration

	// from is the resource version to continue from; empty means that of a new
	// list.
	from string
	// established reports whether the watch was reported as established.
	established bool
}

func (w *watcher) options() metav1.ListOptions {
	if len(w.keys) != 1 {
		return metav1.ListOptions{}
	}

	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", w.keys[0]).String()}
}

// round watches until the API server ends the watch.
func (w *watcher) round(ctx context.Context) error {
	missed := false

	if w.from == "" {
		var err error
		if w.from, err = w.now(ctx); err != nil {
			return err
		}

		missed = w.established
	}

	options, seconds := w.options(), int64(watchSeconds)
	options.ResourceVersion, options.AllowWatchBookmarks, options.TimeoutSeconds = w.from, true, &seconds

	events, err := w.secrets.Watch(ctx, options)
	if err != nil {
		return w.failed("watch", err)
	}
	defer events.Stop()

	if missed || !w.established {
		w.established = true

		if err := w.report(provider.Change{Resync: missed}); err != nil {
			return err
		}
	}

	for event := range events.ResultChan() {
		if err := w.take(event); err != nil {
			return err
		}
	}

	return nil
}

// now returns the current resource version.
func (w *watcher) now(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	options := w.options()
	options.Limit = 1

	list, err := w.secrets.List(ctx, options)
	if err != nil {
		return "", w.failed("list", err)
	}

	return list.ResourceVersion, nil
}

// take reports one event.
func (w *watcher) take(event watch.Event) error {
	if event.Type == watch.Error {
		return w.failed("watch", apierrors.FromObject(event.Object))
	}

	object, err := meta.Accessor(event.Object)
	if err != nil {
		return provider.Unavailable("cannot watch %s: the server does not answer as an API server does", w.what)
	}

	w.from = object.GetResourceVersion()

	if event.Type == watch.Bookmark || len(w.keys) > 0 && !slices.Contains(w.keys, object.GetName()) {
		return nil
	}

	return w.report(provider.Change{Keys: []string{object.GetName()}})
}

func (w *watcher) failed(verb string, err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return errGone
	}

	return cluster.Error(verb+" "+w.what, err)
}
