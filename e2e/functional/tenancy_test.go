package functional

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/tenancy"
	"github.com/external-secrets/eso/testkit/installation"
	"github.com/external-secrets/eso/testkit/suite"
)

// tenancyCases are made on the running operator; the resolver itself is held to
// the model by many more.
const tenancyCases = 400

// tenant is a case as objects.
type tenant struct {
	tenancy.Case

	name  string
	store client.Object
}

// The running operator and the model agree on which namespace can read which
// store, also after the labels of namespaces have changed.
func TestTenantsStayApart(t *testing.T) {
	t.Parallel()

	seed := rand.Uint64()                 //nolint:gosec // not for secrets
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // likewise
	universe := tenancy.RandomUniverse(rng)

	t.Logf("seed %d: %+v", seed, *universe)

	for name, labels := range universe.Namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if err := product.Client.Create(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = product.Client.Delete(context.Background(), namespace) })
	}

	// The value in a target shows which config was read.
	for _, namespace := range universe.Configs {
		product.Apply(t, namespace, "apiVersion: provider.secretstore.external-secrets.io/v2alpha1\nkind: Fake\nmetadata: {name: config}\nspec: {data: [{key: who, value: NS}]}\n")
	}

	universe.Registrations = []tenancy.Registration{
		{Name: product.Providers["fake"].Name, Spellings: spellings(product.Providers["fake"].Address)},
		{Name: "fake-one", Allowed: []string{"team-a", "team"}},
		{Name: "fake-two", Allowed: []string{"team-b", "team", "platform"}},
	}

	for i, r := range universe.Registrations[1:] {
		p, err := product.StartInstance(t.Context(), installation.Instance{Provider: "fake", Name: r.Name, AllowedNamespaces: r.Allowed})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			_ = product.Client.Delete(context.Background(), suite.SecretProvider(r.Name))
			_ = p.Stop()
		})
		product.StoreCondition(t, suite.SecretProvider(r.Name), v2alpha1.ReasonServing)

		universe.Registrations[i+1].Spellings = spellings(p.Address)
	}

	var (
		tenants []tenant
		served  int
	)

	for i := range tenancyCases {
		if made := newTenant(t, universe.Random(rng), fmt.Sprintf("tenant-%03d", i)); made != nil {
			tenants = append(tenants, *made)

			if made.Verdict().Denied == "" {
				served++
			}
		}
	}

	agree(t, tenants, true)
	t.Logf("%d combinations on the running operator, %d of them served", len(tenants), served)

	if served < tenancyCases/50 {
		t.Errorf("only %d combinations are served", served)
	}

	// Every namespace gets the labels of another one.
	names := []string{"team-a", "team-b", "team", "a", "x-team-a", "platform"}
	before := maps.Clone(universe.Namespaces)

	for i, name := range names {
		labels := before[names[(i+1)%len(names)]]
		universe.Namespaces[name] = labels

		patch := fmt.Sprintf(`{"metadata":{"labels":{"team":%s,"kind":%s}}}`, labelValue(labels, "team"), labelValue(labels, "kind"))
		if _, err := product.Kubectl(t.Context(), "", "patch", "namespace", name, "--type=merge", "-p", patch); err != nil {
			t.Fatal(err)
		}
	}

	agree(t, tenants, false)
}

// labelValue in a merge patch.
func labelValue(labels map[string]string, name string) string {
	if value, ok := labels[name]; ok {
		return fmt.Sprintf("%q", value)
	}

	return "null"
}

func spellings(address string) []string {
	return []string{address, "dns:///" + address, "https://" + address, "https://" + address + "/"}
}

// newTenant makes the objects of a case; nil where the API server refuses them,
// which it may only where the model does.
func newTenant(t *testing.T, c tenancy.Case, name string) *tenant {
	t.Helper()

	spec := v2alpha1.StoreSpec{ProviderConfig: v2alpha1.ProviderConfig{
		Address: c.Address, ProviderRef: v2alpha1.ProviderReference{Kind: "Fake", Name: "config", Namespace: c.ConfigNamespace},
	}}
	made := &tenant{Case: c, name: name}
	ref := &esv1.StoreRef{APIVersion: v2alpha1.GroupVersion.String(), Kind: v2alpha1.SecretStoreKind, Name: name}

	if c.Cluster {
		ref.Kind = v2alpha1.ClusterSecretStoreKind
		made.store = &v2alpha1.ClusterSecretStore{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v2alpha1.ClusterSecretStoreSpec{StoreSpec: spec, AuthenticationScope: c.Scope, Conditions: c.Conditions},
		}
	} else {
		made.store = &v2alpha1.SecretStore{ObjectMeta: metav1.ObjectMeta{Namespace: c.Home, Name: name}, Spec: v2alpha1.SecretStoreSpec{StoreSpec: spec}}
	}

	err := product.Client.Create(t.Context(), made.store)
	if apierrors.IsInvalid(err) && c.Verdict().Denied != "" {
		return nil
	}

	if err != nil {
		t.Fatalf("%v\n%+v", err, c)
	}

	t.Cleanup(func() { _ = product.Client.Delete(context.Background(), made.store) })

	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: c.User, Name: name}, Spec: esv1.ExternalSecretSpec{
		RefreshInterval: &metav1.Duration{Duration: time.Hour}, SecretStoreRef: ref,
		Data: []esv1.Data{{SecretKey: "who", RemoteRef: esv1.RemoteRef{Key: "who"}}},
	}}
	if err := product.Client.Create(t.Context(), es); err != nil {
		t.Fatal(err)
	}

	return made
}

// agree waits until the operator and the model agree on every tenant. Targets
// that came into being before are kept.
func agree(t *testing.T, tenants []tenant, fresh bool) {
	t.Helper()

	suite.Within(t, 2*time.Minute, func(ctx context.Context) error {
		var errs []error

		for i := range tenants {
			if err := tenants[i].agrees(ctx, fresh); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w\n%+v", tenants[i].name, err, tenants[i].Case))
			}
		}

		return errors.Join(errs[:min(len(errs), 3)]...)
	})
}

func (t *tenant) agrees(ctx context.Context, fresh bool) error {
	want := t.Verdict()

	_, ready, err := product.ExternalSecret(ctx, t.User, t.name)
	if err != nil {
		return err
	}

	secret, err := product.Secret(ctx, t.User, t.name)
	if client.IgnoreNotFound(err) != nil {
		return err
	}

	if want.Denied != "" {
		switch {
		case fresh && err == nil:
			return fmt.Errorf("a Secret was made, although: %s", want.Denied)
		case ready.Status != metav1.ConditionFalse:
			return fmt.Errorf("it is Ready %q, although: %s", ready.Status, want.Denied)
		}

		return nil
	}

	switch {
	case ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("it is not Ready, although the model serves it: %s", ready.Message)
	case err != nil || string(secret.Data["who"]) != want.Config:
		return fmt.Errorf("the Secret holds %q, not what namespace %q has: %w", secret.Data["who"], want.Config, err)
	}

	if err := product.Client.Get(ctx, client.ObjectKeyFromObject(t.store), t.store); err != nil {
		return err
	}

	status := v2alpha1.StoreStatus{}

	switch s := t.store.(type) {
	case *v2alpha1.SecretStore:
		status = s.Status
	case *v2alpha1.ClusterSecretStore:
		status = s.Status
	}

	if status.Provider == nil || status.Provider.Name != want.Provider {
		return fmt.Errorf("it is served by %+v, not by %s", status.Provider, want.Provider)
	}

	return nil
}
