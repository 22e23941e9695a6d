package secretstore

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/store/resolver"
)

// indexConfig is the cache's index of stores by provider config.
const indexConfig = "config"

// SetupWithManager registers the controller, its index and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, configs *Configs) error {
	object := newStore(r.kind)

	if err := mgr.GetFieldIndexer().IndexField(ctx, object, indexConfig, byConfig); err != nil {
		return fmt.Errorf("cannot index %ss by config: %w", r.kind, err)
	}

	c, err := builder.ControllerManagedBy(mgr).
		Named(map[string]string{v2alpha1.SecretStoreKind: "secretstore", v2alpha1.ClusterSecretStoreKind: "clustersecretstore"}[r.kind]).
		For(object, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v2alpha1.SecretProvider{}, handler.EnqueueRequestsFromMapFunc(r.ofRegistration), builder.WithPredicates(registrationChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers}).
		Build(r)
	if err != nil {
		return fmt.Errorf("cannot set up the %s controller: %w", r.kind, err)
	}

	configs.notify(r.kind, c)

	return nil
}

func newStore(kind string) client.Object {
	if kind == v2alpha1.ClusterSecretStoreKind {
		return &v2alpha1.ClusterSecretStore{}
	}

	return &v2alpha1.SecretStore{}
}

// configName names a provider config in the index.
func configName(gvk schema.GroupVersionKind, namespace, name string) string {
	return gvk.GroupVersion().String() + "/" + gvk.Kind + "/" + namespace + "/" + name
}

func byConfig(object client.Object) []string {
	var spec *v2alpha1.StoreSpec

	namespace := object.GetNamespace()

	switch s := object.(type) {
	case *v2alpha1.SecretStore:
		spec = &s.Spec.StoreSpec
	case *v2alpha1.ClusterSecretStore:
		spec = &s.Spec.StoreSpec
		namespace = spec.ProviderConfig.ProviderRef.Namespace
	default:
		return nil
	}

	ref := spec.ProviderConfig.ProviderRef

	apiVersion := ref.APIVersion
	if apiVersion == "" {
		apiVersion = v2alpha1.DefaultConfigAPIVersion
	}

	return []string{configName(schema.FromAPIVersionAndKind(apiVersion, ref.Kind), namespace, ref.Name)}
}

// registrationChanged lets through what a store can depend on.
func registrationChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v2alpha1.SecretProvider)
		after, also := e.ObjectNew.(*v2alpha1.SecretProvider)

		return !ok || !also ||
			before.Generation != after.Generation ||
			before.Status.Version != after.Status.Version ||
			!equality.Semantic.DeepEqual(before.Status.Kinds, after.Status.Kinds) ||
			readiness(before) != readiness(after)
	}}
}

func readiness(registration *v2alpha1.SecretProvider) string {
	ready := meta.FindStatusCondition(registration.Status.Conditions, v2alpha1.ConditionReady)
	if ready == nil {
		return ""
	}

	// Whether it is well or not quite is nothing that a store depends on.
	if ready.Status == metav1.ConditionTrue {
		return string(ready.Status)
	}

	return string(ready.Status) + "/" + ready.Reason
}

// ofRegistration lists the stores that a registration may serve: those of its
// kinds, and those that name its address. The others are none of its business.
func (r *Reconciler) ofRegistration(ctx context.Context, object client.Object) []reconcile.Request {
	registration, ok := object.(*v2alpha1.SecretProvider)
	if !ok {
		return nil
	}

	listens, err := address.Parse(registration.Spec.Address)

	return storesOf(ctx, r.client, r.kind, func(store *resolver.Store) bool {
		config := store.Spec.ProviderConfig
		if named, bad := address.Parse(config.Address); err == nil && bad == nil && named == listens {
			return true
		}

		apiVersion := config.ProviderRef.APIVersion
		if apiVersion == "" {
			apiVersion = v2alpha1.DefaultConfigAPIVersion
		}

		return slices.ContainsFunc(registration.Status.Kinds, func(kind v2alpha1.ServedKind) bool {
			return kind.Kind == config.ProviderRef.Kind && kind.APIVersion == apiVersion
		})
	})
}

// storesOf lists the stores of a kind that options select, and of these the ones
// that concern accepts; a nil one accepts all.
func storesOf(ctx context.Context, reader client.Reader, kind string, concern func(*resolver.Store) bool, options ...client.ListOption) []reconcile.Request {
	var stores []*resolver.Store

	// A cache that cannot be read has been stopped.
	if kind == v2alpha1.ClusterSecretStoreKind {
		var list v2alpha1.ClusterSecretStoreList
		if err := reader.List(ctx, &list, options...); err != nil {
			return nil
		}

		for i := range list.Items {
			stores = append(stores, resolver.FromClusterSecretStore(&list.Items[i]))
		}
	} else {
		var list v2alpha1.SecretStoreList
		if err := reader.List(ctx, &list, options...); err != nil {
			return nil
		}

		for i := range list.Items {
			stores = append(stores, resolver.FromSecretStore(&list.Items[i]))
		}
	}

	requests := make([]reconcile.Request, 0, len(stores))
	for _, store := range stores {
		if concern != nil && !concern(store) {
			continue
		}

		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(store.Object)})
	}

	return slices.Clip(requests)
}
