package load

import (
	"context"
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// unrelatedWorkers are few: the Secrets are large, and etcd takes its time.
const unrelatedWorkers = 8

// Unrelated creates a namespace with Secrets of a size in bytes that no
// ExternalSecret has to do with.
func Unrelated(ctx context.Context, c client.Client, namespace string, n, size int) error {
	if err := create(ctx, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}

	return parallel(ctx, unrelatedWorkers, n, func(ctx context.Context, i int) error {
		// Random data, which cannot be compressed.
		content := make([]byte, size)
		for j := range content {
			content[j] = byte(rand.Uint32()) //nolint:gosec // nothing depends on it
		}

		return create(ctx, c, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("unrelated-%05d", i)},
			Data:       map[string][]byte{"content": content},
		})
	})
}
