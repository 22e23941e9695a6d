package resolver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/statustext"
	"github.com/external-secrets/eso/core/store"
)

// Dependencies are stores, and the labels of namespaces, which the conditions of
// ClusterSecretStores select by. Configs and registrations are not among them:
// the stores' controller writes their revision into the stores' status.
func (r *Resolver) Dependencies() []store.Dependency {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})

	return []store.Dependency{
		{Object: &v2alpha1.SecretStore{}, Predicates: []predicate.Predicate{storeChanged()}, Selectors: selectors(v2alpha1.SecretStoreKind)},
		{Object: &v2alpha1.ClusterSecretStore{}, Predicates: []predicate.Predicate{storeChanged()}, Selectors: selectors(v2alpha1.ClusterSecretStoreKind)},
		{
			Object: namespace,
			Predicates: []predicate.Predicate{predicate.LabelChangedPredicate{}, predicate.Funcs{
				CreateFunc: func(event.CreateEvent) bool { return false },
				DeleteFunc: func(event.DeleteEvent) bool { return false },
			}},
			Selectors: func(object client.Object) []store.Selector {
				return []store.Selector{selectorOf(v2alpha1.ClusterSecretStoreKind, object.GetName(), "")}
			},
		},
	}
}

func selectors(kind string) func(client.Object) []store.Selector {
	return func(object client.Object) []store.Selector {
		return []store.Selector{selectorOf(kind, object.GetNamespace(), object.GetName())}
	}
}

// storeChanged passes changes that an ExternalSecret can depend on: what the
// store is bound to, and whether it may be used.
func storeChanged() predicate.Predicate {
	status := func(object client.Object) *v2alpha1.StoreStatus {
		switch s := object.(type) {
		case *v2alpha1.SecretStore:
			return &s.Status
		case *v2alpha1.ClusterSecretStore:
			return &s.Status
		default:
			return &v2alpha1.StoreStatus{}
		}
	}

	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := status(e.ObjectOld), status(e.ObjectNew)

		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			before.Revision != after.Revision || readiness(before) != readiness(after)
	}}
}

// readiness is the part of a store's Ready condition that the condition of an
// ExternalSecret may repeat.
func readiness(status *v2alpha1.StoreStatus) string {
	ready := meta.FindStatusCondition(status.Conditions, v2alpha1.ConditionReady)
	if ready == nil {
		return ""
	}

	return fmt.Sprintf("%s %s %d %s", ready.Status, ready.Reason, ready.ObservedGeneration, statustext.Stable(ready.Message))
}
