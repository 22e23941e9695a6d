package secretstore

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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

	"github.com/external-secrets/eso/core/internal/binding"
)

// indexConfig is the cache's index of stores by provider config.
const indexConfig = "config"

// SetupWithManager registers the controller, its index and its watches.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, configs *Configs, concurrent int) error {
	object := newStore(r.kind)

	if err := mgr.GetFieldIndexer().IndexField(ctx, object, indexConfig, byConfig); err != nil {
		return fmt.Errorf("cannot index %ss by config: %w", r.kind, err)
	}

	c, err := builder.ControllerManagedBy(mgr).
		Named(map[string]string{v2alpha1.SecretStoreKind: "secretstore", v2alpha1.ClusterSecretStoreKind: "clustersecretstore"}[r.kind]).
		For(object, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v2alpha1.SecretProvider{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
			return storesOf(ctx, r.client, r.kind)
		}), builder.WithPredicates(registrationChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
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

	return string(ready.Status) + "/" + ready.Reason
}

// storesOf lists the stores of a kind that options select.
func storesOf(ctx context.Context, reader client.Reader, kind string, options ...client.ListOption) []reconcile.Request {
	var stores []*binding.Store

	// A cache that cannot be read has been stopped.
	if kind == v2alpha1.ClusterSecretStoreKind {
		var list v2alpha1.ClusterSecretStoreList
		if err := reader.List(ctx, &list, options...); err != nil {
			return nil
		}

		for i := range list.Items {
			stores = append(stores, binding.FromClusterSecretStore(&list.Items[i]))
		}
	} else {
		var list v2alpha1.SecretStoreList
		if err := reader.List(ctx, &list, options...); err != nil {
			return nil
		}

		for i := range list.Items {
			stores = append(stores, binding.FromSecretStore(&list.Items[i]))
		}
	}

	requests := make([]reconcile.Request, 0, len(stores))
	for _, store := range stores {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(store.Object)})
	}

	return slices.Clip(requests)
}
