package functional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
	"github.com/external-secrets/eso/testkit/suite"
)

// ownedSecret makes a Secret that another controller owns.
func ownedSecret(t *testing.T, ns, name string, data map[string]string) *corev1.Secret {
	t.Helper()

	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner-of-" + name}}
	if err := product.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}

	isController := true
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ServiceAccount", Name: owner.Name, UID: owner.UID, Controller: &isController},
		}},
		StringData: data,
	}

	if err := product.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	return secret
}

const oneKey = "  - {key: db, value: '{\"a\":\"1\",\"b\":\"2\"}'}\n"

func TestCreationPolicies(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeWith(oneKey))

	t.Run("Orphan makes the target and leaves it behind", func(t *testing.T) {
		product.Apply(t, ns, suite.ES("orphan", "  target: {creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Synced(t, ns, "orphan")

		secret, err := product.Secret(t.Context(), ns, "orphan")
		if err != nil {
			t.Fatal(err)
		}

		if len(secret.OwnerReferences) > 0 || secret.Labels[esv1.LabelOwner] != "" || secret.Labels[esv1.LabelManaged] != "true" {
			t.Errorf("it is owned: %v %v", secret.OwnerReferences, secret.Labels)
		}

		product.DeleteES(t, ns, "orphan")

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, product.Data(t, ns, "orphan")); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}
	})

	t.Run("Merge waits for its target, then adds to it, and takes nothing away", func(t *testing.T) {
		product.Apply(t, ns, suite.ES("merge", "  target: {name: theirs, creationPolicy: Merge}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.ReasonIs(t, ns, "merge", esv1.ReasonSecretMissing, `Secret "theirs" does not exist`)

		made := product.NewSecret(t, ns, "theirs", "example.com/own", map[string]string{"a": "theirs", "own": "theirs"})
		product.ReasonIs(t, ns, "merge", esv1.ReasonSecretSynced)

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "own": "theirs"}, product.Data(t, ns, "theirs")); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}

		secret, err := product.Secret(t.Context(), ns, "theirs")
		if err != nil {
			t.Fatal(err)
		}

		if secret.UID != made.UID || len(secret.OwnerReferences) > 0 || secret.Type != "example.com/own" {
			t.Errorf("it is no longer theirs: %+v", secret.ObjectMeta)
		}

		// Changes of the operator's fields are repaired, other fields are kept.
		secret.Data["a"], secret.Data["own"] = []byte("changed"), []byte("changed")
		if err := product.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}

		product.Holds(t, ns, "theirs", "a", "1")
		product.Holds(t, ns, "theirs", "own", "changed")
		product.DeleteES(t, ns, "merge")
		product.Holds(t, ns, "theirs", "a", "1")
	})

	t.Run("several merge into one target without undoing each other's work", func(t *testing.T) {
		product.NewSecret(t, ns, "shared", corev1.SecretTypeOpaque, nil)
		product.Apply(t, ns, suite.ES("one", "  target: {name: shared, creationPolicy: Merge}\n  data: [{secretKey: one, remoteRef: {key: db, property: a}}]\n")+
			suite.ES("two", "  target: {name: shared, creationPolicy: CreateOrMerge}\n  data: [{secretKey: two, remoteRef: {key: db, property: b}}]\n"))
		product.Synced(t, ns, "one")
		product.Synced(t, ns, "two")
		product.Holds(t, ns, "shared", "one", "1")
		product.Holds(t, ns, "shared", "two", "2")

		secret, err := product.Secret(t.Context(), ns, "shared")
		if err != nil {
			t.Fatal(err)
		}

		// Both refresh every second.
		refreshedTwice(t, ns, "one")
		refreshedTwice(t, ns, "two")

		later, err := product.Secret(t.Context(), ns, "shared")
		if err != nil {
			t.Fatal(err)
		}

		if secret.ResourceVersion != later.ResourceVersion {
			t.Errorf("it was written from %s to %s while nothing changed", secret.ResourceVersion, later.ResourceVersion)
		}
	})

	t.Run("CreateOrMerge makes a target that is missing, and makes it again", func(t *testing.T) {
		product.Apply(t, ns, suite.ES("either", "  target: {creationPolicy: CreateOrMerge}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Synced(t, ns, "either")
		product.Holds(t, ns, "either", "a", "1")

		if err := product.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "either"}}); err != nil {
			t.Fatal(err)
		}

		product.Holds(t, ns, "either", "b", "2")
		product.DeleteES(t, ns, "either")
		product.Holds(t, ns, "either", "b", "2")
	})

	t.Run("None touches no foreign Secret", func(t *testing.T) {
		made := product.NewSecret(t, ns, "none", corev1.SecretTypeOpaque, map[string]string{"own": "theirs"})
		product.Apply(t, ns, suite.ES("none", "  target: {creationPolicy: None}\n  dataFrom: [{extract: {key: db}}]\n"))
		refreshedTwice(t, ns, "none")

		secret, err := product.Secret(t.Context(), ns, "none")
		if err != nil {
			t.Fatal(err)
		}

		if secret.ResourceVersion != made.ResourceVersion {
			t.Errorf("it was written: %+v", secret.ObjectMeta)
		}
	})

	t.Run("a change from Owner to Orphan lets the target go", func(t *testing.T) {
		product.Apply(t, ns, suite.ES("free", "  dataFrom: [{extract: {key: db}}]\n"))
		product.Synced(t, ns, "free")
		product.Apply(t, ns, suite.ES("free", "  target: {creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		suite.Eventually(t, func(ctx context.Context) error {
			secret, err := product.Secret(ctx, ns, "free")
			if err != nil || len(secret.OwnerReferences) > 0 || secret.Labels[esv1.LabelOwner] != "" {
				return fmt.Errorf("it is owned: %w %v", err, secret.ObjectMeta)
			}

			return nil
		})
	})

	t.Run("Orphan leaves alone what another controller owns", func(t *testing.T) {
		made := ownedSecret(t, ns, "operated", map[string]string{"own": "theirs", "a": "theirs"})
		product.Apply(t, ns, suite.ES("taker", "  target: {name: operated, creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Failing(t, ns, "taker", `Secret "operated" is owned by ServiceAccount "owner-of-operated"`)

		if secret, err := product.Secret(t.Context(), ns, "operated"); err != nil || secret.ResourceVersion != made.ResourceVersion {
			t.Errorf("it was written to: %v %v", secret, err)
		}
	})

	t.Run("Orphan takes over what has no owner", func(t *testing.T) {
		made := product.NewSecret(t, ns, "found", corev1.SecretTypeOpaque, map[string]string{"own": "theirs"})
		product.Apply(t, ns, suite.ES("finder", "  target: {name: found, creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Synced(t, ns, "finder")

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, product.Data(t, ns, "found")); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}

		if secret, err := product.Secret(t.Context(), ns, "found"); err != nil || secret.UID != made.UID {
			t.Errorf("it was made anew: %v", err)
		}
	})

	t.Run("a Secret of another type keeps it, unless the template asks for one", func(t *testing.T) {
		for _, policy := range []string{"Owner", "Orphan"} {
			name := "typed-" + strings.ToLower(policy)
			made := product.NewSecret(t, ns, name, "example.com/own", map[string]string{"own": "theirs"})
			spec := func(template string) string {
				return suite.ES(name, "  target: {creationPolicy: "+policy+template+"}\n  dataFrom: [{extract: {key: db}}]\n")
			}

			product.Apply(t, ns, spec(""))
			product.Holds(t, ns, name, "a", "1")
			product.Synced(t, ns, name)

			secret, err := product.Secret(t.Context(), ns, name)
			if err != nil || secret.UID != made.UID || secret.Type != "example.com/own" || len(secret.Data) != 2 {
				t.Fatalf("%s: %v %v %v", policy, secret.ObjectMeta, secret.Type, err)
			}

			// Nothing but the type is new: it must be missed.
			product.Apply(t, ns, spec(", template: {type: example.com/other}"))
			product.Failing(t, ns, name, "exists with another type than example.com/other")
			product.Apply(t, ns, spec(", template: {type: example.com/own}"))
			product.Synced(t, ns, name)
		}
	})

	t.Run("a finalizer that is taken out of the template goes", func(t *testing.T) {
		spec := func(finalizers string) string {
			return suite.ES("final", "  target: {template: {metadata: {finalizers: ["+finalizers+"]}}}\n  dataFrom: [{extract: {key: db}}]\n")
		}
		has := func(want ...string) {
			t.Helper()
			suite.Eventually(t, func(ctx context.Context) error {
				secret, err := product.Secret(ctx, ns, "final")
				if err == nil && !slices.Equal(secret.Finalizers, want) {
					err = fmt.Errorf("finalizers: %v", secret.Finalizers)
				}

				return err
			})
		}

		product.Apply(t, ns, spec("example.com/one, example.com/two"))
		has("example.com/one", "example.com/two")
		product.Apply(t, ns, spec("example.com/two"))
		has("example.com/two")
		product.Apply(t, ns, spec(""))
		has()
	})

	t.Run("the former target stays until there is another", func(t *testing.T) {
		product.Apply(t, ns, suite.ES("moves", "  dataFrom: [{extract: {key: db}}]\n"))
		product.Synced(t, ns, "moves")
		ownedSecret(t, ns, "taken", nil)
		product.Apply(t, ns, suite.ES("moves", "  target: {name: taken}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Failing(t, ns, "moves", `Secret "taken" is owned by another controller`)
		product.Holds(t, ns, "moves", "a", "1")
		product.Apply(t, ns, suite.ES("moves", "  target: {name: free-name}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Holds(t, ns, "free-name", "a", "1")
		product.IsGone(t, ns, "moves")
	})

	t.Run("a Secret that is an identity is never added to", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "robot"}}
		if err := product.Client.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}

		token := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}},
			Type:       corev1.SecretTypeServiceAccountToken,
		}
		if err := product.Client.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}

		product.Apply(t, ns, suite.ES("identity", "  target: {name: token, creationPolicy: Merge}\n  dataFrom: [{extract: {key: db}}]\n"))
		product.Failing(t, ns, "identity", "kubernetes.io/service-account-token", "never written to")
	})
}

func TestImmutableTargets(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeWith(oneKey)+suite.ES("frozen", "  target: {immutable: true}\n  dataFrom: [{extract: {key: db}}]\n"))
	product.Synced(t, ns, "frozen")

	secret, err := product.Secret(t.Context(), ns, "frozen")
	if err != nil {
		t.Fatal(err)
	}

	if secret.Immutable == nil || !*secret.Immutable {
		t.Fatal("the target is not immutable")
	}

	product.Apply(t, ns, suite.FakeWith("  - {key: db, value: '{\"a\":\"changed\"}'}\n"))
	suite.Never(t, 3*time.Second, func(ctx context.Context) error {
		_, ready, err := product.ExternalSecret(ctx, ns, "frozen")
		if err == nil && ready.Status != metav1.ConditionTrue {
			err = fmt.Errorf("it is not Ready: %+v", *ready)
		}

		now, failed := product.Secret(ctx, ns, "frozen")
		if failed == nil && string(now.Data["a"]) != "1" {
			failed = errors.New("the immutable target has another value")
		}

		return errors.Join(err, failed)
	})

	// Without the field the target would have to change, and cannot.
	product.Apply(t, ns, suite.ES("frozen", "  dataFrom: [{extract: {key: db}}]\n"))
	product.Failing(t, ns, "frozen", `Secret "frozen" is immutable, and differs`)

	if err := product.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	product.Synced(t, ns, "frozen")
	product.Holds(t, ns, "frozen", "a", "changed")
}

func TestDeletionPolicies(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	full := "  - {key: a, value: \"1\"}\n  - {key: b, value: \"2\"}\n"
	entries := "  data: [{secretKey: a, remoteRef: {key: a}}, {secretKey: b, remoteRef: {key: b}}]\n"

	product.Apply(t, ns, suite.FakeWith(full)+
		suite.ES("retain", entries)+
		suite.ES("delete", "  target: {deletionPolicy: Delete}\n"+entries)+
		suite.ES("merge", "  target: {deletionPolicy: Merge}\n"+entries)+
		suite.ES("templated", "  target: {deletionPolicy: Delete, template: {data: {out: '{{ .a }}'}}}\n  data: [{secretKey: a, remoteRef: {key: a}}]\n")+
		suite.ES("property", "  target: {deletionPolicy: Delete}\n  data: [{secretKey: a, remoteRef: {key: a, property: none}}]\n"))

	for _, name := range []string{"retain", "delete", "merge"} {
		product.Synced(t, ns, name)
	}

	product.Failing(t, ns, "property", "key \"a\" property \"none\"")

	// One of two is gone.
	product.Apply(t, ns, suite.FakeWith("  - {key: a, value: \"1\"}\n"))
	product.Failing(t, ns, "retain", `spec.data[1]`, `key "b"`, `secret "b" does not exist`)

	for _, name := range []string{"delete", "merge"} {
		product.ReasonIs(t, ns, name, esv1.ReasonSecretSynced, `left out: spec.data[1] (key "b")`)

		if diff := cmp.Diff(map[string]string{"a": "1"}, product.Data(t, ns, name)); diff != "" {
			t.Errorf("%s: data (-want +got):\n%s", name, diff)
		}
	}

	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, product.Data(t, ns, "retain")); diff != "" {
		t.Errorf("retain: data (-want +got):\n%s", diff)
	}

	// An error is no proof: nothing goes.
	product.Apply(t, ns, strings.Replace(suite.FakeWith("  - {key: other, value: \"1\"}\n"), "  data:\n", "  error: {code: Unavailable}\n  data:\n", 1))
	product.Failing(t, ns, "delete", "the config asks for this error")
	product.Holds(t, ns, "delete", "a", "1")

	// All are gone.
	product.Apply(t, ns, suite.FakeWith("  - {key: other, value: \"1\"}\n"))
	product.ReasonIs(t, ns, "delete", esv1.ReasonSecretDeleted, "the stores have nothing for it")
	product.IsGone(t, ns, "delete")
	product.ReasonIs(t, ns, "merge", esv1.ReasonSecretSynced, "left out: spec.data[0]")

	if diff := cmp.Diff(map[string]string{}, product.Data(t, ns, "merge")); diff != "" {
		t.Errorf("merge: data (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, product.Data(t, ns, "retain")); diff != "" {
		t.Errorf("retain: data (-want +got):\n%s", diff)
	}

	// A template that needs what is gone keeps nothing alive.
	product.ReasonIs(t, ns, "templated", esv1.ReasonSecretDeleted)
	product.IsGone(t, ns, "templated")

	// And come back.
	product.Apply(t, ns, suite.FakeWith(full))
	product.Holds(t, ns, "templated", "out", "1")

	for _, name := range []string{"retain", "delete", "merge"} {
		product.Holds(t, ns, name, "b", "2")
		product.ReasonIs(t, ns, name, esv1.ReasonSecretSynced)
	}
}

// Drift is repaired from what was fetched last: a client that keeps changing a
// target must not make the operator read the store each time.
func TestDriftReadsNothing(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.WriteVault(t, "secret/"+ns+"/db", map[string]any{"a": "1"})
	product.VaultStore(t, ns, product.Vault.RootToken())
	product.StoreCondition(t, suite.SecretStore(ns, "store"), v2alpha1.ReasonValid)

	manifest := suite.ES("app", "  data: [{secretKey: a, remoteRef: {key: "+ns+"/db, property: a}}]\n")
	product.Apply(t, ns, strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 1h", 1))
	product.Synced(t, ns, "app")

	path := "GET /v1/secret/data/" + ns + "/db"
	reads := product.Vault.Requests()[path]

	for i := range 5 {
		secret, err := product.Secret(t.Context(), ns, "app")
		if err != nil {
			t.Fatal(err)
		}

		secret.Data["a"] = fmt.Appendf(nil, "drift %d", i)
		if err := product.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}

		product.Holds(t, ns, "app", "a", "1")
	}

	if err := product.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}); err != nil {
		t.Fatal(err)
	}

	product.Holds(t, ns, "app", "a", "1")

	if n := product.Vault.Requests()[path] - reads; n != 0 {
		t.Errorf("six repairs cost %d reads at Vault", n)
	}
}

// A client that changes a target repeatedly does not prevent its refreshes: its
// changes are repaired from memory, with a backoff, and the interval and the
// annotation still apply.
func TestADisputedTargetIsRefreshed(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	manifest := suite.ES("app", "  data: [{secretKey: a, remoteRef: {key: a}}]\n")
	product.Apply(t, ns, suite.FakeWith("  - {key: a, value: old}\n")+strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 5s", 1))
	product.Synced(t, ns, "app")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var disputing sync.WaitGroup

	disputing.Go(func() {
		for ctx.Err() == nil {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}
			_ = product.Client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte(`{"data":{"extra":"eA=="}}`)), client.FieldOwner("another-user"))

			time.Sleep(20 * time.Millisecond)
		}
	})

	// By now, a repair is let through every half a minute only.
	time.Sleep(20 * time.Second)

	refreshed := func(why string, ask func()) {
		t.Helper()

		before := product.Synced(t, ns, "app").Status.RefreshTime

		// The time of a refresh counts in seconds.
		time.Sleep(1100 * time.Millisecond)
		ask()

		suite.Within(t, 8*time.Second, func(ctx context.Context) error {
			es, _, err := product.ExternalSecret(ctx, ns, "app")
			if err == nil && !es.Status.RefreshTime.After(before.Time) {
				err = fmt.Errorf("%s: not refreshed since %s", why, before)
			}

			return err
		})
	}

	refreshed("the interval", func() {})
	product.Apply(t, ns, strings.Replace(manifest, "refreshInterval: 1s", "refreshPolicy: CreatedOnce\n  refreshInterval: 1h", 1))
	refreshed("the annotation", func() {
		if out, err := product.Kubectl(t.Context(), "", "-n", ns, "annotate", "externalsecret", "app", "external-secrets.io/force-sync=1"); err != nil {
			t.Fatal(out, err)
		}
	})
	cancel()
	disputing.Wait()
}

// A failure whose cause is gone is over at once, not at the next refresh.
func TestAFailureEndsWithItsCause(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	templates := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: templates}\ndata: {x: 'a={{ .a }}'}\n"
	manifest := suite.ES("app", "  target: {template: {templateFrom: [{configMap: {name: templates, items: [{key: x}]}}]}}\n  data: [{secretKey: a, remoteRef: {key: a}}]\n")
	product.Apply(t, ns, suite.FakeWith("  - {key: a, value: \"1\"}\n")+templates+strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 1h", 1))
	before := product.Synced(t, ns, "app").Status.RefreshTime

	if out, err := product.Kubectl(t.Context(), "", "-n", ns, "delete", "configmap", "templates"); err != nil {
		t.Fatal(out, err)
	}

	product.Failing(t, ns, "app", `ConfigMap "templates" does not exist`)
	product.Apply(t, ns, templates)

	if after := product.Synced(t, ns, "app").Status.RefreshTime; !after.Equal(&before) {
		t.Errorf("it was read again, from %s to %s", before, after)
	}
}

// The annotation works where nothing else makes an ExternalSecret sync.
func TestForceSync(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeWith("  - {key: a, value: old}\n"))

	for name, policy := range map[string]string{"once": "  refreshPolicy: CreatedOnce\n", "never": "", "onchange": "  refreshPolicy: OnChange\n"} {
		manifest := suite.ES(name, policy+"  data: [{secretKey: a, remoteRef: {key: a}}]\n")
		product.Apply(t, ns, strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 0s", 1))
		product.Synced(t, ns, name)
	}

	product.Apply(t, ns, suite.FakeWith("  - {key: a, value: new}\n"))
	suite.Never(t, 2*time.Second, func(ctx context.Context) error {
		for _, name := range []string{"once", "never", "onchange"} {
			if secret, err := product.Secret(ctx, ns, name); err != nil || string(secret.Data["a"]) != "old" {
				return fmt.Errorf("%s was synced without the annotation: %w", name, err)
			}
		}

		return nil
	})

	for _, name := range []string{"once", "never", "onchange"} {
		if out, err := product.Kubectl(t.Context(), "", "-n", ns, "annotate", "externalsecret", name, "external-secrets.io/force-sync=1"); err != nil {
			t.Fatal(out, err)
		}

		product.Holds(t, ns, name, "a", "new")
	}
}
