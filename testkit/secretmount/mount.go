package secretmount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// dataLink is the link that is swapped, under the name that kubelets use.
const dataLink = "..data"

// retryPause lies between two watches.
const retryPause = 200 * time.Millisecond

// Mount is a folder that follows a Secret.
type Mount struct {
	dir    string
	cancel context.CancelFunc
	done   chan struct{}
	first  chan struct{}

	mu      sync.Mutex
	version int
}

// Start keeps dir in sync with a Secret, which need not exist yet, until Stop.
func Start(clientset kubernetes.Interface, secret types.NamespacedName, dir string) (*Mount, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the mount's folder: %w", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	m := &Mount{dir: dir, cancel: cancel, done: make(chan struct{}), first: make(chan struct{})}

	go m.follow(ctx, clientset, secret)

	return m, nil
}

// Wait returns when the folder holds the Secret for the first time.
func (m *Mount) Wait(ctx context.Context) error {
	select {
	case <-m.first:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot mount to %s: the Secret does not appear: %w", m.dir, ctx.Err())
	}
}

// Stop ends the following; the folder stays.
func (m *Mount) Stop() {
	m.cancel()
	<-m.done
}

func (m *Mount) follow(ctx context.Context, clientset kubernetes.Interface, secret types.NamespacedName) {
	defer close(m.done)

	selector := fields.OneTermEqualSelector("metadata.name", secret.Name).String()

	for ctx.Err() == nil {
		watch, err := clientset.CoreV1().Secrets(secret.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: selector})
		if err == nil {
			for event := range watch.ResultChan() {
				if current, ok := event.Object.(*corev1.Secret); ok {
					// A failure is returned to the caller that waits for the content.
					_ = m.write(current.Data)
				}
			}

			watch.Stop()
		}

		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// write writes the data into the folder, all files at once.
func (m *Mount) write(data map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	if len(data) == 0 {
		return nil
	}

	m.version++
	name := "..data_" + strconv.Itoa(m.version)

	if err := os.MkdirAll(filepath.Join(m.dir, name), 0o700); err != nil {
		return err
	}

	for key, value := range data {
		if err := os.WriteFile(filepath.Join(m.dir, name, key), value, 0o600); err != nil {
			return err
		}

		if err := os.Symlink(filepath.Join(dataLink, key), filepath.Join(m.dir, key)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}

	next := filepath.Join(m.dir, dataLink+"_next")
	_ = os.Remove(next)

	if err := os.Symlink(name, next); err != nil {
		return err
	}

	if err := os.Rename(next, filepath.Join(m.dir, dataLink)); err != nil {
		return err
	}

	if m.version > 2 {
		_ = os.RemoveAll(filepath.Join(m.dir, "..data_"+strconv.Itoa(m.version-2)))
	}

	if m.version == 1 {
		close(m.first)
	}

	return nil
}
