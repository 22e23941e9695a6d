package tests

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

// patience is how long a test waits for what must happen at once.
const patience = 30 * time.Second

// newNamespace makes a namespace for one test and deletes it afterwards.
func newNamespace(t *testing.T) string {
	t.Helper()

	var random [4]byte

	_, _ = rand.Read(random[:])
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "test-" + hex.EncodeToString(random[:])}}

	if err := product.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = product.Client.Delete(context.Background(), namespace) })

	return namespace.Name
}

// apply applies a manifest as a user would, under strict validation. "NS"
// stands for the namespace.
func apply(t *testing.T, namespace, manifest string) {
	t.Helper()

	manifest = strings.ReplaceAll(manifest, "NS", namespace)
	if out, err := product.Kubectl(t.Context(), manifest, "-n", namespace, "apply", "--server-side", "--validate=strict", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// eventually waits until check passes.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()

	within(t, patience, check)
}

func within(t *testing.T, limit time.Duration, check func(ctx context.Context) error) {
	t.Helper()

	var last error

	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		// That the time is over says less than what was last seen.
		if err == nil || last == nil || ctx.Err() == nil {
			last = err
		}

		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("not within %s: %v", limit, last)
	}
}

func getES(ctx context.Context, namespace, name string) (*esv1.ExternalSecret, *esv1.Condition, error) {
	es := &esv1.ExternalSecret{}
	if err := product.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, es); err != nil {
		return nil, nil, err
	}

	for i := range es.Status.Conditions {
		if es.Status.Conditions[i].Type == esv1.ConditionReady {
			return es, &es.Status.Conditions[i], nil
		}
	}

	return es, &esv1.Condition{}, nil
}

// synced waits until an ExternalSecret is Ready at its present generation.
func synced(t *testing.T, namespace, name string) *esv1.ExternalSecret {
	t.Helper()

	var es *esv1.ExternalSecret

	eventually(t, func(ctx context.Context) error {
		got, ready, err := getES(ctx, namespace, name)
		if err != nil {
			return err
		}

		if ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != got.Generation {
			return fmt.Errorf("ExternalSecret %s is not synced: %+v", name, *ready)
		}

		es = got

		return nil
	})

	return es
}

// failing waits until an ExternalSecret is not Ready, with a message that
// holds every given text, and gives the message.
func failing(t *testing.T, namespace, name string, texts ...string) string {
	t.Helper()

	var message string

	eventually(t, func(ctx context.Context) error {
		_, ready, err := getES(ctx, namespace, name)
		if err != nil {
			return err
		}

		if ready.Status != metav1.ConditionFalse || ready.Reason != esv1.ReasonSecretSyncedError {
			return fmt.Errorf("ExternalSecret %s does not fail: %+v", name, *ready)
		}

		for _, text := range texts {
			if !strings.Contains(ready.Message, text) {
				return fmt.Errorf("the message lacks %q: %s", text, ready.Message)
			}
		}

		message = ready.Message

		return nil
	})

	return message
}

func getSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}

	return secret, product.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
}

// holds waits until a Secret's key has a value.
func holds(t *testing.T, namespace, name, key, value string) {
	t.Helper()

	eventually(t, func(ctx context.Context) error {
		secret, err := getSecret(ctx, namespace, name)
		if err != nil {
			return err
		}

		if got := string(secret.Data[key]); got != value {
			return fmt.Errorf("Secret %s: key %s is %q, not %q", name, key, got, value)
		}

		return nil
	})
}

// storeCondition waits until a store's Ready condition has a reason, and gives
// its message.
func storeCondition(t *testing.T, store client.Object, reason string, texts ...string) string {
	t.Helper()

	var message string

	eventually(t, func(ctx context.Context) error {
		ready, err := storeReady(ctx, store)
		if err != nil {
			return err
		}

		if ready.Reason != reason {
			return fmt.Errorf("%s is not %s: %+v", store.GetName(), reason, ready)
		}

		for _, text := range texts {
			if !strings.Contains(ready.Message, text) {
				return fmt.Errorf("the message lacks %q: %s", text, ready.Message)
			}
		}

		message = ready.Message

		return nil
	})

	return message
}

// storeReady is a store's or a registration's Ready condition.
func storeReady(ctx context.Context, store client.Object) (metav1.Condition, error) {
	if err := product.Client.Get(ctx, client.ObjectKeyFromObject(store), store); err != nil {
		return metav1.Condition{}, err
	}

	var conditions []metav1.Condition

	switch s := store.(type) {
	case *v2alpha1.SecretStore:
		conditions = s.Status.Conditions
	case *v2alpha1.ClusterSecretStore:
		conditions = s.Status.Conditions
	case *v2alpha1.SecretProvider:
		conditions = s.Status.Conditions
	}

	ready := meta.FindStatusCondition(conditions, v2alpha1.ConditionReady)
	if ready == nil {
		return metav1.Condition{}, fmt.Errorf("%s has no Ready condition", store.GetName())
	}

	return *ready, nil
}

// becomes waits longer than storeCondition: for what is tried again only now
// and then.
func becomes(t *testing.T, store client.Object, reason string) {
	t.Helper()

	within(t, 90*time.Second, func(ctx context.Context) error {
		ready, err := storeReady(ctx, store)
		if err == nil && ready.Reason != reason {
			err = fmt.Errorf("%s is not %s: %+v", store.GetName(), reason, ready)
		}

		return err
	})
}

func secretStore(namespace, name string) *v2alpha1.SecretStore {
	return &v2alpha1.SecretStore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func clusterSecretStore(name string) *v2alpha1.ClusterSecretStore {
	return &v2alpha1.ClusterSecretStore{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func secretProvider(name string) *v2alpha1.SecretProvider {
	return &v2alpha1.SecretProvider{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
