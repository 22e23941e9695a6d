package resolver

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/statustext"
)

// Store is a SecretStore or a ClusterSecretStore.
type Store struct {
	// Object itself.
	Object client.Object
	// Kind of the store.
	Kind string
	// Spec and Status point into Object.
	Spec   *v2alpha1.StoreSpec
	Status *v2alpha1.StoreStatus
	// Scope and Conditions of a ClusterSecretStore.
	Scope      v2alpha1.AuthenticationScope
	Conditions []v2alpha1.NamespaceCondition
}

// FromSecretStore wraps a SecretStore.
func FromSecretStore(s *v2alpha1.SecretStore) *Store {
	return &Store{Object: s, Kind: v2alpha1.SecretStoreKind, Spec: &s.Spec.StoreSpec, Status: &s.Status}
}

// FromClusterSecretStore wraps a ClusterSecretStore.
func FromClusterSecretStore(s *v2alpha1.ClusterSecretStore) *Store {
	return &Store{
		Object: s, Kind: v2alpha1.ClusterSecretStoreKind, Spec: &s.Spec.StoreSpec, Status: &s.Status,
		Scope: s.Spec.AuthenticationScope, Conditions: s.Spec.Conditions,
	}
}

// Key names a store. Namespace is empty for a ClusterSecretStore.
type Key struct{ Kind, Namespace, Name string }

// String names the store, for messages.
func (k Key) String() string {
	if k.Namespace == "" {
		return fmt.Sprintf("%s %q", k.Kind, k.Name)
	}

	return fmt.Sprintf("%s %q in namespace %q", k.Kind, k.Name, k.Namespace)
}

// Get reads a store. An absent one is a *store.DenialError.
func Get(ctx context.Context, reader client.Reader, key Key, options ...client.GetOption) (*Store, error) {
	var (
		store *Store
		err   error
	)

	switch key.Kind {
	case v2alpha1.SecretStoreKind:
		s := &v2alpha1.SecretStore{}
		err = reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, s, options...)
		store = FromSecretStore(s)
	case v2alpha1.ClusterSecretStoreKind:
		s := &v2alpha1.ClusterSecretStore{}
		err = reader.Get(ctx, client.ObjectKey{Name: key.Name}, s, options...)
		store = FromClusterSecretStore(s)
	default:
		return nil, deny(v2alpha1.ReasonInvalidProviderConfig, "store kind %q is neither SecretStore nor ClusterSecretStore", key.Kind)
	}

	switch {
	case apierrors.IsNotFound(err):
		return nil, deny(v2alpha1.ReasonInvalidProviderConfig, "%s does not exist", key)
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", key, err)
	}

	return store, nil
}

// Key names the store.
func (s *Store) Key() Key {
	return Key{Kind: s.Kind, Namespace: s.Object.GetNamespace(), Name: s.Object.GetName()}
}

// Ready returns the store's Ready condition; nil when it has none.
func (s *Store) Ready() *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, v2alpha1.ConditionReady)
}

// RefreshInterval between two validations.
func (s *Store) RefreshInterval(fallback time.Duration) time.Duration {
	if s.Spec.RefreshInterval == nil || s.Spec.RefreshInterval.Duration <= 0 {
		return fallback
	}

	return s.Spec.RefreshInterval.Duration
}

// Gated says why the store must not be fetched through now; nil where it may.
func (s *Store) Gated() error {
	if s.Spec.GatingPolicy == v2alpha1.GatingDisabled {
		return nil
	}

	ready := s.Ready()

	switch {
	case ready == nil || ready.ObservedGeneration != s.Object.GetGeneration():
		return deny(v2alpha1.ReasonValidationUnknown, "%s has not been validated yet", s.Key())
	case ready.Status != metav1.ConditionTrue:
		return deny(ready.Reason, "%s is not Ready (%s): %s", s.Key(), ready.Reason, statustext.Stable(ready.Message))
	default:
		return nil
	}
}

// Healthy reports whether the store was Ready, at its present generation, when it
// was last validated.
func (s *Store) Healthy() bool {
	ready := s.Ready()

	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == s.Object.GetGeneration()
}

// Since returns when the store became Ready, or not Ready; empty where that
// is not known.
func (s *Store) Since() string {
	if ready := s.Ready(); ready != nil {
		return string(ready.Status) + ready.LastTransitionTime.UTC().Format(time.RFC3339)
	}

	return ""
}
