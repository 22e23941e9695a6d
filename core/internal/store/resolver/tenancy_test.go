package resolver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/store"
	"github.com/external-secrets/eso/core/tenancy"
)

const (
	// combinations of stores, scopes, references and selectors that are tried.
	combinations = 100_000
	// perUniverse of them have namespaces, registrations and configs in common.
	perUniverse = 50
)

var kind = schema.FromAPIVersionAndKind(v2alpha1.DefaultConfigAPIVersion, "Vault")

// cluster is what the operator's cache has of a case.
type cluster struct {
	client.Reader

	tenancy.Case
}

func (c cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	absent := apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, key.Name)

	switch object := object.(type) {
	case *v2alpha1.SecretStore:
		if c.Cluster || key != (client.ObjectKey{Namespace: c.Home, Name: "store"}) {
			return absent
		}

		object.Namespace, object.Name, object.UID = key.Namespace, key.Name, "store-uid"
		object.Spec.StoreSpec, object.Status = c.spec(), ready
	case *v2alpha1.ClusterSecretStore:
		if !c.Cluster || key != (client.ObjectKey{Name: "store"}) {
			return absent
		}

		object.Name, object.UID = key.Name, "store-uid"
		object.Spec = v2alpha1.ClusterSecretStoreSpec{StoreSpec: c.spec(), AuthenticationScope: c.Scope, Conditions: c.Conditions}
		object.Status = ready
	case *metav1.PartialObjectMetadata:
		if object.Kind == "Namespace" {
			labels, ok := c.Universe.Namespaces[key.Name]
			if !ok {
				return absent
			}

			object.Name, object.Labels = key.Name, labels

			return nil
		}

		for _, namespace := range c.Universe.Configs {
			if key == (client.ObjectKey{Namespace: namespace, Name: "config"}) {
				object.Namespace, object.Name, object.UID = key.Namespace, key.Name, types.UID("uid-of-"+namespace)

				return nil
			}
		}

		return absent
	default:
		return fmt.Errorf("the resolver reads a %T", object)
	}

	return nil
}

func (c cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	registrations, ok := list.(*v2alpha1.SecretProviderList)
	if !ok {
		return fmt.Errorf("the resolver lists %T", list)
	}

	for _, r := range c.Universe.Registrations {
		registrations.Items = append(registrations.Items, v2alpha1.SecretProvider{
			ObjectMeta: metav1.ObjectMeta{Name: r.Name, UID: types.UID(r.Name)},
			Spec:       v2alpha1.SecretProviderSpec{Address: r.Spellings[0], AllowedNamespaces: r.Allowed},
			Status:     v2alpha1.SecretProviderStatus{Kinds: []v2alpha1.ServedKind{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}}},
		})
	}

	return nil
}

var ready = v2alpha1.StoreStatus{Conditions: []metav1.Condition{{Type: v2alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v2alpha1.ReasonValid}}}

func (c cluster) spec() v2alpha1.StoreSpec {
	return v2alpha1.StoreSpec{ProviderConfig: v2alpha1.ProviderConfig{
		Address: c.Address, ProviderRef: v2alpha1.ProviderReference{Kind: kind.Kind, Name: "config", Namespace: c.ConfigNamespace},
	}}
}

// served has every kind of config.
type served struct{}

func (served) Watch(context.Context, schema.GroupVersionKind) error { return nil }

// open opens a case's store as an ExternalSecret does, and says what came of it.
func open(ctx context.Context, c tenancy.Case) tenancy.Verdict {
	reader := cluster{Case: c}
	pool := providerclient.NewPool(providerclient.Options{})

	defer pool.Close()

	reference := store.Reference{APIVersion: v2alpha1.GroupVersion.String(), Kind: v2alpha1.SecretStoreKind, Name: "store"}
	if c.Cluster {
		reference.Kind = v2alpha1.ClusterSecretStoreKind
	}

	binder := NewBinder(reader, ListedRegistrations{reader}, served{}, Policy{})

	snapshot, err := New(reader, binder, pool, "", 1, nil).Resolve(ctx, reference, c.User)
	if err == nil {
		err = snapshot.Gate
	}

	if err != nil {
		if _, denied := errors.AsType[*store.DenialError](err); !denied {
			return tenancy.Verdict{Denied: "it failed: " + err.Error(), Provider: "none"}
		}

		return tenancy.Verdict{Denied: err.Error()}
	}

	bound, ok := snapshot.Client.(*providerStore)
	if !ok {
		return tenancy.Verdict{Denied: "no client", Provider: "none"}
	}

	call := bound.bound.Call(c.User)
	if call.GetSourceNamespace() != c.User || call.GetConfig().GetUid() != "uid-of-"+call.GetConfig().GetNamespace() {
		return tenancy.Verdict{Denied: "another's call", Provider: "none"}
	}

	for _, r := range c.Universe.Registrations {
		if r.Name == bound.bound.Provider && bound.bound.Endpoint.Address.String() != r.Spellings[0] {
			return tenancy.Verdict{Denied: "another's address", Provider: "none"}
		}
	}

	return tenancy.Verdict{Provider: bound.bound.Provider, Config: call.GetConfig().GetNamespace(), Authentication: call.GetAuthenticationNamespace()}
}

// For all combinations of stores, scopes, references and conditions, the resolver
// and the model agree on which namespace can read which store.
func TestTenantsStayApart(t *testing.T) {
	t.Parallel()

	seed := rand.Uint64()                 //nolint:gosec // not for secrets
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // likewise

	reasons, served := map[string]int{}, 0

	var universe *tenancy.Universe

	for i := range combinations {
		if i%perUniverse == 0 {
			universe = tenancy.RandomUniverse(rng)
		}

		c := universe.Random(rng)
		want, got := c.Verdict(), open(t.Context(), c)

		reasons[want.Denied]++

		if want.Denied == "" {
			served++
		} else if got.Denied != "" && got.Provider == "" {
			// The texts are for different readers.
			got.Denied = want.Denied
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, combination %d (-model +resolver):\n%s%+v\n%+v", seed, i, diff, c, *universe)
		}
	}

	t.Logf("%d combinations, %d of them served; by the model's reason: %v", combinations, served, reasons)

	// A generator that meets hardly anything would prove hardly anything.
	if served < combinations/20 || len(reasons) != 9 {
		t.Errorf("%d combinations are served, and %d reasons are met: %v", served, len(reasons), reasons)
	}
}

// Published advisories of similar projects, as fixed cases.
func TestPublishedAdvisories(t *testing.T) {
	t.Parallel()

	universe := &tenancy.Universe{
		Namespaces:    map[string]map[string]string{"tenant": {"team": "a"}, "victim": {"team": "b"}, "tenant-x": {}},
		Configs:       []string{"tenant", "victim"},
		Registrations: []tenancy.Registration{{Name: "vault", Spellings: []string{"dns:///vault.eso.svc:8443"}}},
	}

	for _, c := range []struct {
		why, want string
		tenancy.Case
	}{
		{
			why:  "GHSA-wv26-88m5-6h59: a namespaced store names another namespace in a reference",
			Case: tenancy.Case{Home: "tenant", User: "tenant", ConfigNamespace: "victim"}, want: "its own namespace \"tenant\" only",
		},
		{
			why:  "GHSA-fcxq-v2r3-cc8h: what is found without a namespace is found in all of them",
			Case: tenancy.Case{Home: "victim", User: "tenant"}, want: "does not exist",
		},
		{
			why: "a cluster store's expression that is not anchored lets a look-alike in",
			Case: tenancy.Case{
				Cluster: true, User: "tenant-x", ConfigNamespace: "tenant",
				Conditions: []v2alpha1.NamespaceCondition{{NamespaceRegexes: []string{"tenant"}}},
			},
			want: "do not admit namespace",
		},
		{
			why:  "an address of the tenant's own gets the operator's certificate or token",
			Case: tenancy.Case{Home: "tenant", User: "tenant", Address: "evil.example.com:443"}, want: "nothing was dialled",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			c.Universe = universe

			if got := open(t.Context(), c.Case); !strings.Contains(got.Denied, c.want) || c.Verdict().Denied == "" {
				t.Errorf("denied: %q, by the model: %q; want %q", got.Denied, c.Verdict().Denied, c.want)
			}
		})
	}
}
