package resolver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/store"
)

// watched has every kind but one.
type watched struct{}

func (watched) Watch(_ context.Context, gvk schema.GroupVersionKind) error {
	if gvk.Kind == "Absent" {
		return &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
	}

	return nil
}

func secretStore(namespace string, edit func(*v2alpha1.StoreSpec)) *Store {
	s := &v2alpha1.SecretStore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "store", UID: "store-uid", Generation: 3}}
	s.Spec.ProviderConfig.ProviderRef = v2alpha1.ProviderReference{Kind: "Vault", Name: "config"}

	if edit != nil {
		edit(&s.Spec.StoreSpec)
	}

	return FromSecretStore(s)
}

func clusterStore(scope v2alpha1.AuthenticationScope) *Store {
	s := &v2alpha1.ClusterSecretStore{ObjectMeta: metav1.ObjectMeta{Name: "store", UID: "store-uid"}}
	s.Spec.ProviderConfig.ProviderRef = v2alpha1.ProviderReference{Kind: "Vault", Name: "config", Namespace: "tenant"}
	s.Spec.AuthenticationScope = scope

	return FromClusterSecretStore(s)
}

func registration(name, addr string, edit func(*v2alpha1.SecretProvider)) *v2alpha1.SecretProvider {
	r := &v2alpha1.SecretProvider{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "registration-uid"}}
	r.Spec.Address = addr
	r.Status.Kinds = []v2alpha1.ServedKind{{APIVersion: v2alpha1.DefaultConfigAPIVersion, Kind: "Vault", Capabilities: []string{"Read"}}}

	if edit != nil {
		edit(r)
	}

	return r
}

func config(namespace string) *metav1.PartialObjectMetadata {
	c := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "config", UID: "config-uid", Generation: 2}}
	c.SetGroupVersionKind(schema.FromAPIVersionAndKind(v2alpha1.DefaultConfigAPIVersion, "Vault"))

	return c
}

func binder(t *testing.T, policy Policy, objects ...client.Object) *Binder {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := v2alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	metav1.AddMetaToScheme(scheme) //nolint:errcheck // it cannot fail on an empty scheme

	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()

	return NewBinder(reader, ListedRegistrations{reader}, watched{}, policy)
}

func TestBindDenies(t *testing.T) {
	t.Parallel()

	vault := registration("vault", vaultAddress, nil)

	for _, c := range []struct {
		why     string
		store   *Store
		objects []client.Object
		policy  Policy
		reason  string
		want    string
	}{
		{
			why: "no provider serves the kind", store: secretStore("tenant", nil),
			reason: v2alpha1.ReasonProviderNotRegistered, want: "no SecretProvider serves Vault",
		},
		{
			why: "two serve it, and neither is named", store: secretStore("tenant", nil),
			objects: []client.Object{vault, registration("other", "other.ns.svc:1", nil)},
			reason:  v2alpha1.ReasonProviderNotRegistered, want: "SecretProviders other, vault all serve",
		},
		{
			why: "the namespace is left out", store: secretStore("tenant", nil),
			objects: []client.Object{registration("vault", vaultAddress, func(r *v2alpha1.SecretProvider) { r.Spec.AllowedNamespaces = []string{"platform"} })},
			reason:  v2alpha1.ReasonProviderNotRegistered, want: "allowedNamespaces leave out namespace \"tenant\"",
		},
		{
			why:   "another namespace's config",
			store: secretStore("tenant", func(s *v2alpha1.StoreSpec) { s.ProviderConfig.ProviderRef.Namespace = "platform" }), objects: []client.Object{vault, config("platform")},
			reason: v2alpha1.ReasonInvalidProviderConfig, want: "its own namespace \"tenant\" only",
		},
		{
			why:   "an address that is not registered",
			store: secretStore("tenant", func(s *v2alpha1.StoreSpec) { s.ProviderConfig.Address = "evil.example.com:443" }), objects: []client.Object{vault},
			reason: v2alpha1.ReasonProviderNotRegistered, want: "nothing was dialled",
		},
		{
			why:   "an address that differs in its port",
			store: secretStore("tenant", func(s *v2alpha1.StoreSpec) { s.ProviderConfig.Address = "vault.secrets.svc:8444" }), objects: []client.Object{vault},
			reason: v2alpha1.ReasonProviderNotRegistered, want: "nothing was dialled",
		},
		{
			why:    "an address that is none",
			store:  secretStore("tenant", func(s *v2alpha1.StoreSpec) { s.ProviderConfig.Address = "vault" }),
			reason: v2alpha1.ReasonInvalidProviderConfig, want: "spec.providerConfig.address",
		},
		{
			why: "a registered socket where sockets are off", store: secretStore("tenant", nil),
			objects: []client.Object{registration("vault", "unix:///run/vault.sock", nil)},
			reason:  v2alpha1.ReasonProviderNotRegistered, want: "--provider-socket-dir is not set",
		},
		{
			why: "a registered socket outside the folder", store: secretStore("tenant", nil), policy: Policy{SocketDir: "/run/eso"},
			objects: []client.Object{registration("vault", "unix:///run/docker.sock", nil)},
			reason:  v2alpha1.ReasonProviderNotRegistered, want: "outside the operator's --provider-socket-dir",
		},
		{
			why: "a registered provider that speaks another protocol", store: secretStore("tenant", nil),
			objects: []client.Object{registration("vault", vaultAddress, func(r *v2alpha1.SecretProvider) {
				r.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: v2alpha1.ReasonUnsupportedProtocol, Message: "speaks v3"}}
			})},
			reason: v2alpha1.ReasonProviderUnavailable, want: "speaks v3",
		},
		{
			why: "a config that is not there", store: secretStore("tenant", nil), objects: []client.Object{vault, config("other")},
			reason: v2alpha1.ReasonInvalidProviderConfig, want: `Vault "config" of provider.secretstore.external-secrets.io/v2alpha1 does not exist in namespace "tenant"`,
		},
		{
			why:     "a kind that the cluster does not have",
			store:   secretStore("tenant", func(s *v2alpha1.StoreSpec) { s.ProviderConfig.ProviderRef.Kind = "Absent" }),
			objects: []client.Object{registration("vault", vaultAddress, func(r *v2alpha1.SecretProvider) { r.Status.Kinds[0].Kind = "Absent" })},
			reason:  v2alpha1.ReasonInvalidProviderConfig, want: "the cluster has no kind Absent",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			_, err := binder(t, c.policy, c.objects...).Bind(t.Context(), c.store)

			denial, ok := errors.AsType[*store.DenialError](err)
			if !ok || denial.Reason != c.reason || !strings.Contains(denial.Message, c.want) {
				t.Errorf("err = %#v; want %s with %q", err, c.reason, c.want)
			}
		})
	}
}

func TestBindBinds(t *testing.T) {
	t.Parallel()

	objects := []client.Object{registration("vault", "dns:///vault.secrets.svc:8443", nil), config("tenant")}

	t.Run("the registration that serves the kind, with its identity pinned", func(t *testing.T) {
		t.Parallel()

		b, err := binder(t, Policy{}, objects...).Bind(t.Context(), secretStore("tenant", nil))
		if err != nil {
			t.Fatal(err)
		}

		if b.Endpoint.Address.String() != "dns:///vault.secrets.svc:8443" || b.Endpoint.Trust.ServerName != "vault.secrets.svc" ||
			b.Endpoint.Trust.Identity != "spiffe://external-secrets.io/provider/vault" {
			t.Errorf("endpoint: %+v", b.Endpoint)
		}

		call := b.Call("tenant")
		if call.GetConfig().GetUid() != "config-uid" || call.GetConfig().GetGeneration() != 2 || call.GetStore().GetUid() != "store-uid" ||
			call.GetAuthenticationNamespace() != "tenant" || call.GetSourceNamespace() != "tenant" || call.GetRequestId() == "" {
			t.Errorf("call: %v", call)
		}
	})

	t.Run("an address that the operator's flag allows", func(t *testing.T) {
		t.Parallel()

		allowed, err := address.Parse("10.0.0.1:8443")
		if err != nil {
			t.Fatal(err)
		}

		b, err := binder(t, Policy{Allowed: []address.Address{allowed}}, objects...).Bind(t.Context(), secretStore("tenant", func(s *v2alpha1.StoreSpec) {
			s.ProviderConfig.Address = "https://10.0.0.1:8443"
		}))
		if err != nil || b.Endpoint.Address != allowed || b.Provider != "" {
			t.Errorf("binding %+v, %v", b, err)
		}
	})

	for _, c := range []struct {
		why            string
		scope          v2alpha1.AuthenticationScope
		source, wanted string
	}{
		{"the config's namespace is the default", "", "user", "tenant"},
		{"the config's namespace", v2alpha1.AuthenticationScopeProviderNamespace, "user", "tenant"},
		{"the source namespace", v2alpha1.AuthenticationScopeManifestNamespace, "user", "user"},
		{"no namespace, if the store is validated without a source namespace", v2alpha1.AuthenticationScopeManifestNamespace, "", ""},
	} {
		t.Run("credentials of a cluster store resolve in "+c.why, func(t *testing.T) {
			t.Parallel()

			b, err := binder(t, Policy{}, objects...).Bind(t.Context(), clusterStore(c.scope))
			if err != nil {
				t.Fatal(err)
			}

			if got := b.Call(c.source).GetAuthenticationNamespace(); got != c.wanted {
				t.Errorf("authentication namespace is %q, not %q", got, c.wanted)
			}
		})
	}

	t.Run("the revision follows store, config and registration", func(t *testing.T) {
		t.Parallel()

		seen := map[string]string{}

		for what, change := range map[string]func(*Store, *metav1.PartialObjectMetadata, *v2alpha1.SecretProvider){
			"nothing":      func(*Store, *metav1.PartialObjectMetadata, *v2alpha1.SecretProvider) {},
			"store":        func(s *Store, _ *metav1.PartialObjectMetadata, _ *v2alpha1.SecretProvider) { s.Object.SetGeneration(9) },
			"config":       func(_ *Store, c *metav1.PartialObjectMetadata, _ *v2alpha1.SecretProvider) { c.Generation = 9 },
			"other config": func(_ *Store, c *metav1.PartialObjectMetadata, _ *v2alpha1.SecretProvider) { c.UID = "other" },
			"registration": func(_ *Store, _ *metav1.PartialObjectMetadata, r *v2alpha1.SecretProvider) { r.Generation = 9 },
		} {
			s, c, r := secretStore("tenant", nil), config("tenant"), registration("vault", "vault:1", nil)
			change(s, c, r)

			got := revision(s.Object, c, r)
			if other, taken := seen[got]; taken {
				t.Errorf("%s and %s have the same revision", what, other)
			}

			seen[got] = what
		}
	})
}

func TestAdmits(t *testing.T) {
	t.Parallel()

	labels := map[string]string{"team": "a"}

	for _, c := range []struct {
		why        string
		conditions []v2alpha1.NamespaceCondition
		want       bool
		err        string
	}{
		{why: "no conditions admit all", want: true},
		{why: "a condition that holds nothing admits none", conditions: []v2alpha1.NamespaceCondition{{}}},
		{why: "an empty selector admits all", conditions: []v2alpha1.NamespaceCondition{{NamespaceSelector: &metav1.LabelSelector{}}}, want: true},
		{why: "a label", conditions: []v2alpha1.NamespaceCondition{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels}}}, want: true},
		{why: "another label", conditions: []v2alpha1.NamespaceCondition{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}}}},
		{why: "a name", conditions: []v2alpha1.NamespaceCondition{{Namespaces: []string{"x", "team-a"}}}, want: true},
		{why: "any entry suffices", conditions: []v2alpha1.NamespaceCondition{{Namespaces: []string{"x"}}, {Namespaces: []string{"team-a"}}}, want: true},
		{why: "an expression for the whole name", conditions: []v2alpha1.NamespaceCondition{{NamespaceRegexes: []string{"team-.*"}}}, want: true},
		{why: "an expression for its beginning does not match", conditions: []v2alpha1.NamespaceCondition{{NamespaceRegexes: []string{"team"}}}},
		{why: "an expression that matches the end of the name only does not match", conditions: []v2alpha1.NamespaceCondition{{NamespaceRegexes: []string{"-a"}}}},
		{why: "alternatives are anchored together", conditions: []v2alpha1.NamespaceCondition{{NamespaceRegexes: []string{"team|x"}}}},
		{why: "a multi-line expression is anchored, too", conditions: []v2alpha1.NamespaceCondition{{NamespaceRegexes: []string{"(?m)^team$"}}}},
		{why: "an expression that closes the anchors' parentheses admits no namespace", conditions: []v2alpha1.NamespaceCondition{{NamespaceRegexes: []string{"x)|(.*"}}}, err: "spec.conditions[0].namespaceRegexes[0]"},
		{why: "an invalid expression admits no namespace", conditions: []v2alpha1.NamespaceCondition{{Namespaces: []string{"team-a"}, NamespaceRegexes: []string{"("}}}, err: "spec.conditions[0].namespaceRegexes[0]"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			got, err := Admits(c.conditions, "team-a", labels)
			if got != c.want || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
				t.Errorf("Admits = %t, %v", got, err)
			}
		})
	}
}

func TestGated(t *testing.T) {
	t.Parallel()

	ready := func(status metav1.ConditionStatus, generation int64) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: "R", Message: "because; next try in 4s", ObservedGeneration: generation}}
	}

	got := map[string]string{}

	for name, edit := range map[string]func(*Store){
		"never validated":  func(*Store) {},
		"validated before": func(s *Store) { s.Status.Conditions = ready(metav1.ConditionTrue, 2) },
		"ready":            func(s *Store) { s.Status.Conditions = ready(metav1.ConditionTrue, 3) },
		"not ready":        func(s *Store) { s.Status.Conditions = ready(metav1.ConditionFalse, 3) },
		"not ready, ungated": func(s *Store) {
			s.Status.Conditions = ready(metav1.ConditionFalse, 3)
			s.Spec.GatingPolicy = v2alpha1.GatingDisabled
		},
		"unvalidated, ungated": func(s *Store) { s.Spec.GatingPolicy = v2alpha1.GatingDisabled },
	} {
		s := secretStore("ns", nil)
		edit(s)

		if err := s.Gated(); err != nil {
			got[name] = err.Error()
		}
	}

	want := map[string]string{
		"never validated":  `SecretStore "store" in namespace "ns" has not been validated yet`,
		"validated before": `SecretStore "store" in namespace "ns" has not been validated yet`,
		"not ready":        `SecretStore "store" in namespace "ns" is not Ready (R): because`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
