package load

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

const (
	collectorPause = 200 * time.Millisecond
	// collectorLimit is generous: the garbage collector looks for new kinds
	// every 30 s.
	collectorLimit = 2 * time.Minute
)

// AwaitCollector waits until the garbage collector watches ExternalSecrets. One
// that does not yet asks the API server for the owner of every new target, for
// minutes and ten times a second, in the middle of what is measured.
func AwaitCollector(ctx context.Context, c client.Client) error {
	const name = "garbage-collector"

	if err := create(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}

	probe := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	if err := create(ctx, c, probe); err != nil {
		return err
	}

	// Only the garbage collector ends a deletion of this kind.
	if err := c.Delete(ctx, probe, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return fmt.Errorf("cannot delete ExternalSecret %q: %w", name, err)
	}

	deadline := time.Now().Add(collectorLimit)

	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(probe), probe)

		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("cannot read ExternalSecret %q: %w", name, err)
		case time.Now().After(deadline):
			return fmt.Errorf("cannot wait for the garbage collector to watch ExternalSecrets: it does not after %s", collectorLimit)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(collectorPause):
		}
	}
}
