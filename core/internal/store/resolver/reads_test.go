package resolver

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/store"
)

// countingReader counts reads by the kind of object.
type countingReader struct {
	client.Reader

	reads map[string]int
	// returned are the SecretProviders that lists returned.
	returned int
}

func (c *countingReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	kind := fmt.Sprintf("%T", object)
	if partial, ok := object.(*metav1.PartialObjectMetadata); ok {
		kind = partial.Kind
	}

	c.reads["get "+kind]++

	return c.Reader.Get(ctx, key, object, options...)
}

func (c *countingReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.reads[fmt.Sprintf("list %T", list)]++

	err := c.Reader.List(ctx, list, options...)
	if registrations, ok := list.(*v2alpha1.SecretProviderList); ok {
		c.returned += len(registrations.Items)
	}

	return err
}

// A sync asks the snapshot for everything: class, revision, watcher and client
// cost one read of each object, and registrations of other kinds none.
func TestResolveReadsEachObjectOnce(t *testing.T) {
	t.Parallel()

	scheme := runtime.NewScheme()
	if err := v2alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	shared := &v2alpha1.ClusterSecretStore{ObjectMeta: metav1.ObjectMeta{Name: "store", UID: "store-uid"}}
	shared.Spec.ProviderConfig.ProviderRef = v2alpha1.ProviderReference{Kind: "Vault", Name: "config", Namespace: "tenant"}
	shared.Spec.Conditions = []v2alpha1.NamespaceCondition{{Namespaces: []string{"tenant"}}}
	shared.Status = ready
	shared.Status.Capabilities = []string{capabilityWatch}

	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})

	builder := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v2alpha1.SecretProvider{}, indexServedKind, byServedKind).
		WithIndex(&v2alpha1.SecretProvider{}, indexAddress, byAddress).
		WithObjects(shared, namespace, config("tenant"), registration("vault", vaultAddress, nil))

	for i := range 20 {
		builder = builder.WithObjects(registration(fmt.Sprintf("other-%d", i), fmt.Sprintf("other-%d.ns.svc:1", i), func(r *v2alpha1.SecretProvider) {
			r.Status.Kinds[0].Kind = "Other"
		}))
	}

	reader := &countingReader{Reader: builder.Build(), reads: map[string]int{}}
	pool := providerclient.NewPool(providerclient.Options{})

	defer pool.Close()

	binder := NewBinder(reader, IndexedRegistrations{reader}, watched{}, Policy{})

	snapshot, err := New(reader, binder, pool, "", 1, nil).Resolve(t.Context(), store.Reference{Kind: v2alpha1.ClusterSecretStoreKind, Name: "store"}, "tenant")
	if err != nil || snapshot.Gate != nil || snapshot.Client == nil || snapshot.Watcher == nil || snapshot.Revision == "" || !snapshot.Healthy {
		t.Fatalf("%+v, %v", snapshot, err)
	}

	want := map[string]int{
		"get *v2alpha1.ClusterSecretStore": 1, "get Namespace": 1, "list *v2alpha1.SecretProviderList": 1, "get Vault": 1,
	}
	if diff := cmp.Diff(want, reader.reads); diff != "" || reader.returned != 1 {
		t.Errorf("reads (-want +got):\n%s%d registrations copied", diff, reader.returned)
	}
}
