package extensiontest

import (
	"context"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"

	"github.com/external-secrets/eso/core/generator"
	"github.com/external-secrets/eso/core/operator"
	"github.com/external-secrets/eso/core/store"
)

// storeVersion is the apiVersion of the extension's stores: the one that the API
// admits and that the operator itself does not serve.
var storeVersion = schema.GroupVersion{Group: "external-secrets.io", Version: "v1"}

// SecretStore is a kind of store that holds its values itself.
type SecretStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Values map[string]string `json:"values,omitempty"`
}

// DeepCopyObject copies the object.
func (s *SecretStore) DeepCopyObject() runtime.Object {
	out := *s
	s.DeepCopyInto(&out.ObjectMeta)
	out.Values = maps.Clone(s.Values)

	return &out
}

// SecretStoreList lists SecretStores.
type SecretStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []SecretStore `json:"items"`
}

// DeepCopyObject copies the list.
func (l *SecretStoreList) DeepCopyObject() runtime.Object {
	out := *l
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]SecretStore, 0, len(l.Items))

	for i := range l.Items {
		if item, ok := l.Items[i].DeepCopyObject().(*SecretStore); ok {
			out.Items = append(out.Items, *item)
		}
	}

	return &out
}

func addStores(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(storeVersion, &SecretStore{}, &SecretStoreList{})
	metav1.AddToGroupVersion(scheme, storeVersion)

	return nil
}

func storeDefinition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true

	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "secretstores." + storeVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: storeVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "SecretStore", ListKind: "SecretStoreList", Plural: "secretstores", Singular: "secretstore"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: storeVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
			}},
		},
	}
}

// resolver resolves references to SecretStores.
type resolver struct{ reader client.Reader }

var _ store.Resolver = resolver{}

func (r resolver) Resolve(ctx context.Context, reference store.Reference, namespace string) (store.Snapshot, error) {
	secretStore := &SecretStore{}
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: reference.Name}, secretStore, client.UnsafeDisableDeepCopy)

	switch {
	case apierrors.IsNotFound(err):
		return store.Snapshot{Gate: &store.DenialError{Reason: "Missing", Message: fmt.Sprintf("%s does not exist", reference)}}, nil
	case err != nil:
		return store.Snapshot{}, fmt.Errorf("cannot read %s: %w", reference, err)
	}

	return store.Snapshot{
		Revision: secretStore.ResourceVersion, Healthy: true, Client: contents(secretStore.Values),
		Flow: store.Flow{Provider: "inline", Store: namespace + "/" + reference.Name},
	}, nil
}

func (resolver) Dependencies() []store.Dependency {
	return []store.Dependency{{Object: &SecretStore{}, Selectors: func(object client.Object) []store.Selector {
		return []store.Selector{{
			Reference: store.Reference{APIVersion: storeVersion.String(), Kind: "SecretStore", Name: object.GetName()},
			Namespace: object.GetNamespace(),
		}}
	}}}
}

// contents of a SecretStore.
type contents map[string]string

func (c contents) Read(_ context.Context, reads []store.Read, _ []string) ([]store.Result, error) {
	results := make([]store.Result, len(reads))

	for i, read := range reads {
		value, ok := c[read.Key]
		if !ok {
			results[i].Err = &store.Error{Code: codes.NotFound, Reason: pb.ReasonNotFound, Item: true, Message: "the store has no such value"}

			continue
		}

		results[i].Value = []byte(value)
	}

	return results, nil
}

func (c contents) Find(context.Context, store.Find) (map[string][]byte, error) {
	found := make(map[string][]byte, len(c))
	for key, value := range c {
		found[key] = []byte(value)
	}

	return found, nil
}

// stamps generates values that name the generator and the namespace.
type stamps struct{}

var _ generator.Resolver = stamps{}

func (stamps) Generate(_ context.Context, reference generator.Reference, namespace string) (map[string][]byte, error) {
	return map[string][]byte{"stamp": []byte(reference.Kind + "/" + namespace + "/" + reference.Name)}, nil
}

// extension adds all of it. started is closed when its controller runs.
func extension(started chan<- struct{}) operator.Extension {
	return operator.Extension{
		AddToScheme: addStores,
		Stores: map[string]func(operator.Environment) (store.Resolver, error){
			storeVersion.String(): func(e operator.Environment) (store.Resolver, error) { return resolver{e.Reader}, nil },
		},
		Generators: map[string]func(operator.Environment) (generator.Resolver, error){
			"stamps.example.com/v1": func(operator.Environment) (generator.Resolver, error) { return stamps{}, nil },
		},
		Controllers: func(_ context.Context, mgr manager.Manager) error {
			return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				close(started)
				<-ctx.Done()

				return nil
			}))
		},
	}
}

// patience bounds the wait for anything that the operator does.
const patience = 30 * time.Second
