package load

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

const (
	// storeName is the name of each namespace's store and of its config.
	storeName = "store"
	tokenName = "vault-token"
	tokenKey  = "token"

	// storesPause lies between two looks at the stores.
	storesPause = 200 * time.Millisecond

	configAPIVersion = v2alpha1.DefaultConfigAPIVersion
)

// properties of each key at the backend, each a key of the target.
func properties() []string { return []string{"username", "password"} }

// Load is a number of ExternalSecrets, spread evenly over stores, each store in
// a namespace of its own and each ExternalSecret with a key of its own.
type Load struct {
	// Client of an administrator.
	Client client.Client
	// Name begins the names of the namespaces; no other Load has the same.
	Name string
	// Objects is the number of ExternalSecrets, Stores that of stores.
	Objects, Stores int
	// Refresh is the ExternalSecrets' refreshInterval.
	Refresh time.Duration
}

// Namespace of a store.
func (l *Load) Namespace(store int) string { return fmt.Sprintf("%s-%03d", l.Name, store) }

// Object gives the name of an ExternalSecret and of its target.
func (l *Load) Object(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: l.Namespace(i % l.Stores), Name: fmt.Sprintf("app-%05d", i)}
}

// key of an ExternalSecret at the backend.
func key(object types.NamespacedName) string { return object.Namespace + "/" + object.Name }

// value of a key at the backend.
func value(object types.NamespacedName) map[string]any {
	values := map[string]any{}
	for _, property := range properties() {
		values[property] = property + " of " + object.Name
	}

	return values
}

// Has reports whether an ExternalSecret belongs to the load.
func (l *Load) Has(name types.NamespacedName) bool {
	return len(name.Namespace) == len(l.Namespace(0)) && name.Namespace[:len(l.Name)+1] == l.Name+"-"
}

// Namespaces creates the namespaces.
func (l *Load) Namespaces(ctx context.Context) error {
	return parallel(ctx, workers, l.Stores, func(ctx context.Context, i int) error {
		return create(ctx, l.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.Namespace(i)}})
	})
}

// Backend is a Vault that keys can be written to.
type Backend interface {
	Write(ctx context.Context, path string, data map[string]any) error
	Address() string
	RootToken() string
}

// Vault writes the keys to a Vault and creates the stores on it.
func (l *Load) Vault(ctx context.Context, backend Backend) error {
	if err := l.Keys(ctx, backend, 0, l.Objects); err != nil {
		return err
	}

	return l.stores(ctx, "Vault", func(ctx context.Context, store int) (map[string]any, error) {
		token := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace(store), Name: tokenName},
			StringData: map[string]string{tokenKey: backend.RootToken()},
		}

		return map[string]any{
			"server": backend.Address(),
			"path":   "secret",
			"auth":   map[string]any{"tokenSecretRef": map[string]any{"name": tokenName, "key": tokenKey}},
		}, create(ctx, l.Client, token)
	})
}

// Keys writes the keys of the ExternalSecrets from one number up to another.
func (l *Load) Keys(ctx context.Context, backend Backend, from, to int) error {
	return parallel(ctx, workers, to-from, func(ctx context.Context, i int) error {
		object := l.Object(from + i)

		return backend.Write(ctx, "secret/"+key(object), value(object))
	})
}

// SetToken replaces the token that the stores log in to Vault with.
func (l *Load) SetToken(ctx context.Context, token string) error {
	return parallel(ctx, workers, l.Stores, func(ctx context.Context, i int) error {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace(i), Name: tokenName}}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"stringData":{%q:%q}}`, tokenKey, token))

		if err := l.Client.Patch(ctx, secret, patch); err != nil {
			return fmt.Errorf("cannot replace the token in namespace %q: %w", secret.Namespace, err)
		}

		return nil
	})
}

// Fake creates the stores on the fake provider; their configs hold the keys.
func (l *Load) Fake(ctx context.Context) error {
	return l.stores(ctx, "Fake", func(_ context.Context, store int) (map[string]any, error) {
		var data []any

		for i := store; i < l.Objects; i += l.Stores {
			object := l.Object(i)
			data = append(data, map[string]any{"key": key(object), "value": fmt.Sprintf(
				`{"username":"username of %s","password":"password of %s"}`, object.Name, object.Name,
			)})
		}

		return map[string]any{"data": data}, nil
	})
}

// SetLatency makes a store on the fake provider slow.
func (l *Load) SetLatency(ctx context.Context, store int, latency time.Duration) error {
	config := l.config("Fake", store)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"latency":%q}}`, latency))

	if err := l.Client.Patch(ctx, config, patch); err != nil {
		return fmt.Errorf("cannot set the latency of Fake %q in namespace %q: %w", config.GetName(), config.GetNamespace(), err)
	}

	return nil
}

func (l *Load) config(kind string, store int) *unstructured.Unstructured {
	config := &unstructured.Unstructured{}
	config.SetAPIVersion(configAPIVersion)
	config.SetKind(kind)
	config.SetNamespace(l.Namespace(store))
	config.SetName(storeName)

	return config
}

// stores creates configs of a kind and stores on them.
func (l *Load) stores(ctx context.Context, kind string, spec func(ctx context.Context, store int) (map[string]any, error)) error {
	return parallel(ctx, workers, l.Stores, func(ctx context.Context, i int) error {
		content, err := spec(ctx, i)
		if err != nil {
			return err
		}

		config := l.config(kind, i)
		config.Object["spec"] = content

		if err := create(ctx, l.Client, config); err != nil {
			return err
		}

		store := &v2alpha1.SecretStore{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace(i), Name: storeName}}
		store.Spec.ProviderConfig.ProviderRef = v2alpha1.ProviderReference{Kind: kind, Name: storeName}

		return create(ctx, l.Client, store)
	})
}

// StoresReady waits until all stores are Ready.
func (l *Load) StoresReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	for {
		var list v2alpha1.SecretStoreList
		if err := l.Client.List(ctx, &list); err != nil {
			return fmt.Errorf("cannot list SecretStores: %w", err)
		}

		ready := 0

		for i := range list.Items {
			store := &list.Items[i]
			if l.Has(client.ObjectKeyFromObject(store)) && meta.IsStatusConditionTrue(store.Status.Conditions, v2alpha1.ConditionReady) {
				ready++
			}
		}

		if ready == l.Stores {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for %d stores to be Ready: after %s %d are", l.Stores, limit, ready)
		case <-time.After(storesPause):
		}
	}
}

// ExternalSecrets creates all ExternalSecrets.
func (l *Load) ExternalSecrets(ctx context.Context) error {
	return parallel(ctx, workers, l.Objects, l.ExternalSecret)
}

// ExternalSecret creates one; its number may be greater than Objects.
func (l *Load) ExternalSecret(ctx context.Context, i int) error {
	name := l.Object(i)
	es := &esv1.ExternalSecret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec: esv1.ExternalSecretSpec{
			SecretStoreRef:  &esv1.StoreRef{APIVersion: v2alpha1.GroupVersion.String(), Kind: v2alpha1.SecretStoreKind, Name: storeName},
			RefreshInterval: &metav1.Duration{Duration: l.Refresh},
		},
	}

	for _, property := range properties() {
		es.Spec.Data = append(es.Spec.Data, esv1.Data{
			SecretKey: property, RemoteRef: esv1.RemoteRef{Key: key(name), Property: property},
		})
	}

	return create(ctx, l.Client, es)
}

// ForceSync asks the operator to sync an ExternalSecret at once.
func (l *Load) ForceSync(ctx context.Context, name types.NamespacedName, mark string) error {
	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, esv1.AnnotationForceSync, mark))

	if err := l.Client.Patch(ctx, es, patch); err != nil {
		return fmt.Errorf("cannot annotate ExternalSecret %s: %w", name, err)
	}

	return nil
}

// SecretsHold checks that every target holds what the backend does.
func (l *Load) SecretsHold(ctx context.Context) error {
	found := 0

	for store := range l.Stores {
		var list corev1.SecretList
		if err := l.Client.List(ctx, &list, client.InNamespace(l.Namespace(store)), client.MatchingLabels{esv1.LabelManaged: esv1.LabelManagedValue}); err != nil {
			return fmt.Errorf("cannot list Secrets: %w", err)
		}

		for i := range list.Items {
			secret := &list.Items[i]
			for property, want := range value(client.ObjectKeyFromObject(secret)) {
				if string(secret.Data[property]) != want {
					return fmt.Errorf("the Secret %s/%s does not hold the %s that the backend does", secret.Namespace, secret.Name, property)
				}
			}
		}

		found += len(list.Items)
	}

	if found != l.Objects {
		return fmt.Errorf("there are %d targets, not %d", found, l.Objects)
	}

	return nil
}

func create(ctx context.Context, c client.Client, object client.Object) error {
	if err := c.Create(ctx, object); err != nil {
		return fmt.Errorf("cannot create %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
	}

	return nil
}
