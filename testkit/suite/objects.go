package suite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

const (
	// Patience is how long a test waits for what happens at once on an idle
	// machine.
	Patience = 60 * time.Second
	// pollInterval lies between two looks at an object.
	pollInterval = 50 * time.Millisecond
	// fieldManager applies manifests: that of kubectl, which tests use, too.
	fieldManager = "kubectl"
)

// Namespace creates a namespace for one test and deletes it afterwards.
func (s *Suite) Namespace(t *testing.T) string {
	t.Helper()

	var random [4]byte

	_, _ = rand.Read(random[:])
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "test-" + hex.EncodeToString(random[:])}}

	if err := s.Client.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Client.Delete(context.Background(), namespace) })

	return namespace.Name
}

// Apply applies the documents of a manifest as kubectl apply --server-side
// --validate=strict does. "NS" in it is replaced by the namespace, which is also
// that of namespaced objects that name none.
func (s *Suite) Apply(t *testing.T, namespace, manifest string) {
	t.Helper()

	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.ReplaceAll(manifest, "NS", namespace)), 4096)

	for {
		object := &unstructured.Unstructured{}

		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return
		}

		if err == nil && len(object.Object) == 0 {
			continue
		}

		if err == nil {
			err = s.apply(t.Context(), namespace, object)
		}

		if err != nil {
			t.Fatalf("cannot apply %s %q: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func (s *Suite) apply(ctx context.Context, namespace string, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()

	var mapping *meta.RESTMapping

	// A CustomResourceDefinition that has just been applied is served in a moment.
	err := wait.PollUntilContextTimeout(ctx, pollInterval, 10*time.Second, true, func(context.Context) (bool, error) {
		var err error

		mapping, err = s.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return false, nil
		}

		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("the cluster has no kind %s: %w", kind, err)
	}

	var resource dynamic.ResourceInterface = s.dynamic.Resource(mapping.Resource)

	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}

		resource = s.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}

	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}

	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})

	return err
}

// Eventually waits until a check passes, and fails the test where it does not
// within Patience.
func Eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()

	Within(t, Patience, check)
}

// Within is Eventually with another limit.
func Within(t *testing.T, limit time.Duration, check func(ctx context.Context) error) {
	t.Helper()

	var last error

	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, limit, true, func(ctx context.Context) (bool, error) {
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

// Never waits for a while, and fails the test as soon as a check fails.
func Never(t *testing.T, while time.Duration, check func(ctx context.Context) error) {
	t.Helper()

	var failure error

	_ = wait.PollUntilContextTimeout(t.Context(), 4*pollInterval, while, true, func(ctx context.Context) (bool, error) {
		if err := check(ctx); err != nil && ctx.Err() == nil {
			failure = err
		}

		return failure != nil, nil
	})
	if failure != nil {
		t.Fatal(failure)
	}
}

// ExternalSecret reads an ExternalSecret and its Ready condition, which is
// empty where it has none.
func (s *Suite) ExternalSecret(ctx context.Context, namespace, name string) (*esv1.ExternalSecret, *esv1.Condition, error) {
	es := &esv1.ExternalSecret{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, es); err != nil {
		return nil, nil, err
	}

	for i := range es.Status.Conditions {
		if es.Status.Conditions[i].Type == esv1.ConditionReady {
			return es, &es.Status.Conditions[i], nil
		}
	}

	return es, &esv1.Condition{}, nil
}

// Synced waits until an ExternalSecret is Ready at its present generation.
func (s *Suite) Synced(t *testing.T, namespace, name string) *esv1.ExternalSecret {
	t.Helper()

	var es *esv1.ExternalSecret

	Eventually(t, func(ctx context.Context) error {
		got, ready, err := s.ExternalSecret(ctx, namespace, name)
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

// Refreshed waits until an ExternalSecret is Ready and was refreshed after a
// refresh that Synced has returned.
func (s *Suite) Refreshed(t *testing.T, before *esv1.ExternalSecret) *esv1.ExternalSecret {
	t.Helper()

	var es *esv1.ExternalSecret

	Eventually(t, func(ctx context.Context) error {
		got, ready, err := s.ExternalSecret(ctx, before.Namespace, before.Name)
		if err != nil {
			return err
		}

		if ready.Status != metav1.ConditionTrue || !got.Status.RefreshTime.After(before.Status.RefreshTime.Time) {
			return fmt.Errorf("ExternalSecret %s is not refreshed since %s: %+v", before.Name, before.Status.RefreshTime, *ready)
		}

		es = got

		return nil
	})

	return es
}

// Failing waits until an ExternalSecret is not Ready, with a message that has
// every given text, and returns the message.
func (s *Suite) Failing(t *testing.T, namespace, name string, texts ...string) string {
	t.Helper()

	var message string

	Eventually(t, func(ctx context.Context) error {
		_, ready, err := s.ExternalSecret(ctx, namespace, name)
		if err != nil {
			return err
		}

		if ready.Status != metav1.ConditionFalse || ready.Reason != esv1.ReasonSecretSyncedError {
			return fmt.Errorf("ExternalSecret %s does not fail: %+v", name, *ready)
		}

		message = ready.Message

		return lacks(message, texts)
	})

	return message
}

// lacks is an error where a message lacks one of the texts.
func lacks(message string, texts []string) error {
	for _, text := range texts {
		if !strings.Contains(message, text) {
			return fmt.Errorf("the message lacks %q: %s", text, message)
		}
	}

	return nil
}

// Secret reads a Secret.
func (s *Suite) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}

	return secret, s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
}

// Data returns what a Secret holds, as text.
func (s *Suite) Data(t *testing.T, namespace, name string) map[string]string {
	t.Helper()

	secret, err := s.Secret(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}

	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}

	return data
}

// Holds waits until a Secret's key has a value.
func (s *Suite) Holds(t *testing.T, namespace, name, key, value string) {
	t.Helper()

	Eventually(t, func(ctx context.Context) error {
		secret, err := s.Secret(ctx, namespace, name)
		if err != nil {
			return err
		}

		if got := string(secret.Data[key]); got != value {
			return fmt.Errorf("Secret %s: key %s is %q, not %q", name, key, got, value)
		}

		return nil
	})
}

// StoreCondition waits until a store's or a registration's Ready condition has a
// reason, and a message that has every given text, and returns the message.
func (s *Suite) StoreCondition(t *testing.T, store client.Object, reason string, texts ...string) string {
	t.Helper()

	var message string

	Within(t, 90*time.Second, func(ctx context.Context) error {
		ready, err := s.StoreReady(ctx, store)
		if err != nil {
			return err
		}

		if ready.Reason != reason {
			return fmt.Errorf("%s is not %s: %+v", store.GetName(), reason, ready)
		}

		message = ready.Message

		return lacks(message, texts)
	})

	return message
}

// StoreReady reads a store's or a registration's Ready condition.
func (s *Suite) StoreReady(ctx context.Context, store client.Object) (metav1.Condition, error) {
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(store), store); err != nil {
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

// TLSSecret creates a Secret of type kubernetes.io/tls that is gone after the
// test.
func (s *Suite) TLSSecret(t *testing.T, namespace, name string, data map[string][]byte) {
	t.Helper()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data}
	if err := s.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Client.Delete(context.Background(), secret) })
}

// IsGone waits until a Secret does not exist.
func (s *Suite) IsGone(t *testing.T, namespace, name string) {
	t.Helper()

	Eventually(t, func(ctx context.Context) error {
		if _, err := s.Secret(ctx, namespace, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Secret %s: %w", name, errors.Join(err, errors.New("it still exists")))
		}

		return nil
	})
}

// SecretStore names a SecretStore.
func SecretStore(namespace, name string) *v2alpha1.SecretStore {
	return &v2alpha1.SecretStore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// ClusterSecretStore names a ClusterSecretStore.
func ClusterSecretStore(name string) *v2alpha1.ClusterSecretStore {
	return &v2alpha1.ClusterSecretStore{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// SecretProvider names a SecretProvider.
func SecretProvider(name string) *v2alpha1.SecretProvider {
	return &v2alpha1.SecretProvider{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// varying is what differs in a message from try to try.
var varying = regexp.MustCompile(`,? ?request [0-9a-f]{16}|; next try in [0-9.a-z]+`)

// WatchFailures collects the messages of failed syncs in a namespace until the
// returned function is called.
func (s *Suite) WatchFailures(t *testing.T, ns string) (stop func() map[string]int) {
	t.Helper()

	var (
		mu       sync.Mutex
		messages = map[string]int{}
		wait     sync.WaitGroup
	)

	ctx, cancel := context.WithCancel(t.Context())

	wait.Go(func() {
		for ctx.Err() == nil {
			var list esv1.ExternalSecretList
			if err := s.Client.List(ctx, &list, client.InNamespace(ns)); err == nil {
				mu.Lock()

				for _, es := range list.Items {
					for _, condition := range es.Status.Conditions {
						if condition.Status != metav1.ConditionTrue {
							messages[varying.ReplaceAllString(condition.Message, "")]++
						}
					}
				}

				mu.Unlock()
			}

			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})

	return func() map[string]int {
		cancel()
		wait.Wait()

		return messages
	}
}
