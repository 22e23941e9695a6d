package externalsecret

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// lag is the longest that a cache is waited for. What it shows after that is
// the truth: somebody else has written, or deleted, in between.
const lag = 2 * time.Second

// writes remembers what this process wrote last, so that a cache that lags
// behind is not taken for a change that somebody made: that would read the
// store twice.
type writes struct {
	mu   sync.Mutex
	last map[types.NamespacedName]write
}

type write struct {
	object, target string
	at             time.Time
}

func newWrites() *writes { return &writes{last: map[types.NamespacedName]write{}} }

// remember keeps the resource versions of an object and, unless empty, of its
// target.
func (w *writes) remember(es *esv1.ExternalSecret, target string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.last[types.NamespacedName{Namespace: es.Namespace, Name: es.Name}] = write{object: es.ResourceVersion, target: target, at: time.Now()}
}

func (w *writes) forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()

	delete(w.last, name)
}

// ahead tells whether the caches show less than was written.
func (w *writes) ahead(es *esv1.ExternalSecret, target client.Object) bool {
	name := types.NamespacedName{Namespace: es.Namespace, Name: es.Name}

	w.mu.Lock()
	defer w.mu.Unlock()

	last, ok := w.last[name]
	if !ok {
		return false
	}

	if time.Since(last.at) > lag {
		delete(w.last, name)

		return false
	}

	if older(es.ResourceVersion, last.object) ||
		(last.target != "" && (target == nil || older(target.GetResourceVersion(), last.target))) {
		return true
	}

	// The caches have caught up: a target that is missing from now on is gone.
	delete(w.last, name)

	return false
}

func older(a, b string) bool {
	compared, err := resourceversion.CompareResourceVersion(a, b)

	return err == nil && compared < 0
}
