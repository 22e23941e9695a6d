package tests

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// fakeWith is fakeStore with other secrets, as lines of spec.data.
func fakeWith(data string) string {
	head, tail, _ := strings.Cut(fakeStore, "  data:\n")
	_, tail, _ = strings.Cut(tail, "---\n")

	return head + "  data:\n" + data + "---\n" + tail
}

// es is an ExternalSecret of the store "store", with further lines of its spec.
func es(name, spec string) string {
	return `---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: ` + name + `
spec:
  refreshInterval: 1s
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
` + spec
}

// reasonIs waits until an ExternalSecret is Ready for a reason, with a message
// that holds every text.
func reasonIs(t *testing.T, ns, name, reason string, texts ...string) {
	t.Helper()

	eventually(t, func(ctx context.Context) error {
		es, ready, err := getES(ctx, ns, name)
		if err != nil {
			return err
		}

		if ready.Reason != reason || ready.ObservedGeneration != es.Generation {
			return fmt.Errorf("ExternalSecret %s is not %s: %+v", name, reason, *ready)
		}

		for _, text := range texts {
			if !strings.Contains(ready.Message, text) {
				return fmt.Errorf("the message lacks %q: %s", text, ready.Message)
			}
		}

		return nil
	})
}

func newSecret(t *testing.T, ns, name string, secretType corev1.SecretType, data map[string]string) *corev1.Secret {
	t.Helper()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: secretType, StringData: data}
	if err := product.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	return secret
}

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

// dataOf a Secret, as text.
func dataOf(t *testing.T, ns, name string) map[string]string {
	t.Helper()

	secret, err := getSecret(t.Context(), ns, name)
	if err != nil {
		t.Fatal(err)
	}

	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}

	return data
}

func isGone(t *testing.T, ns, name string) {
	t.Helper()

	eventually(t, func(ctx context.Context) error {
		if _, err := getSecret(ctx, ns, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Secret %s: %w", name, errors.Join(err, errors.New("it is still there")))
		}

		return nil
	})
}

func deleteES(t *testing.T, ns, name string) {
	t.Helper()

	object := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := product.Client.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}

	eventually(t, func(ctx context.Context) error {
		if err := product.Client.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("ExternalSecret %s is still there: %w", name, err)
		}

		return nil
	})
}

const oneKey = "  - {key: db, value: '{\"a\":\"1\",\"b\":\"2\"}'}\n"

func TestCreationPolicies(t *testing.T) {
	ns := newNamespace(t)
	apply(t, ns, fakeWith(oneKey))

	t.Run("Orphan makes the target and leaves it behind", func(t *testing.T) {
		apply(t, ns, es("orphan", "  target: {creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		synced(t, ns, "orphan")

		secret, err := getSecret(t.Context(), ns, "orphan")
		if err != nil {
			t.Fatal(err)
		}

		if len(secret.OwnerReferences) > 0 || secret.Labels[esv1.LabelOwner] != "" || secret.Labels[esv1.LabelManaged] != "true" {
			t.Errorf("it is owned: %v %v", secret.OwnerReferences, secret.Labels)
		}

		deleteES(t, ns, "orphan")

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, dataOf(t, ns, "orphan")); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}
	})

	t.Run("Merge waits for its target, then adds to it, and takes nothing away", func(t *testing.T) {
		apply(t, ns, es("merge", "  target: {name: theirs, creationPolicy: Merge}\n  dataFrom: [{extract: {key: db}}]\n"))
		reasonIs(t, ns, "merge", esv1.ReasonSecretMissing, `Secret "theirs" does not exist`)

		made := newSecret(t, ns, "theirs", "example.com/own", map[string]string{"a": "theirs", "own": "theirs"})
		reasonIs(t, ns, "merge", esv1.ReasonSecretSynced)

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "own": "theirs"}, dataOf(t, ns, "theirs")); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}

		secret, err := getSecret(t.Context(), ns, "theirs")
		if err != nil {
			t.Fatal(err)
		}

		if secret.UID != made.UID || len(secret.OwnerReferences) > 0 || secret.Type != "example.com/own" {
			t.Errorf("it is no longer theirs: %+v", secret.ObjectMeta)
		}

		// What somebody changes of ours is repaired, theirs is left alone.
		secret.Data["a"], secret.Data["own"] = []byte("changed"), []byte("changed")
		if err := product.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}

		holds(t, ns, "theirs", "a", "1")
		holds(t, ns, "theirs", "own", "changed")
		deleteES(t, ns, "merge")
		holds(t, ns, "theirs", "a", "1")
	})

	t.Run("several merge into one target without undoing each other's work", func(t *testing.T) {
		newSecret(t, ns, "shared", corev1.SecretTypeOpaque, nil)
		apply(t, ns, es("one", "  target: {name: shared, creationPolicy: Merge}\n  data: [{secretKey: one, remoteRef: {key: db, property: a}}]\n")+
			es("two", "  target: {name: shared, creationPolicy: CreateOrMerge}\n  data: [{secretKey: two, remoteRef: {key: db, property: b}}]\n"))
		synced(t, ns, "one")
		synced(t, ns, "two")
		holds(t, ns, "shared", "one", "1")
		holds(t, ns, "shared", "two", "2")

		secret, err := getSecret(t.Context(), ns, "shared")
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Second)

		later, err := getSecret(t.Context(), ns, "shared")
		if err != nil {
			t.Fatal(err)
		}

		if secret.ResourceVersion != later.ResourceVersion {
			t.Errorf("it was written from %s to %s while nothing changed", secret.ResourceVersion, later.ResourceVersion)
		}
	})

	t.Run("CreateOrMerge makes a target that is missing, and makes it again", func(t *testing.T) {
		apply(t, ns, es("either", "  target: {creationPolicy: CreateOrMerge}\n  dataFrom: [{extract: {key: db}}]\n"))
		synced(t, ns, "either")
		holds(t, ns, "either", "a", "1")

		if err := product.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "either"}}); err != nil {
			t.Fatal(err)
		}

		holds(t, ns, "either", "b", "2")
		deleteES(t, ns, "either")
		holds(t, ns, "either", "b", "2")
	})

	t.Run("None touches no foreign Secret", func(t *testing.T) {
		made := newSecret(t, ns, "none", corev1.SecretTypeOpaque, map[string]string{"own": "theirs"})
		apply(t, ns, es("none", "  target: {creationPolicy: None}\n  dataFrom: [{extract: {key: db}}]\n"))
		synced(t, ns, "none")
		time.Sleep(2 * time.Second)

		secret, err := getSecret(t.Context(), ns, "none")
		if err != nil {
			t.Fatal(err)
		}

		if secret.ResourceVersion != made.ResourceVersion {
			t.Errorf("it was written: %+v", secret.ObjectMeta)
		}
	})

	t.Run("a change from Owner to Orphan lets the target go", func(t *testing.T) {
		apply(t, ns, es("free", "  dataFrom: [{extract: {key: db}}]\n"))
		synced(t, ns, "free")
		apply(t, ns, es("free", "  target: {creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		eventually(t, func(ctx context.Context) error {
			secret, err := getSecret(ctx, ns, "free")
			if err != nil || len(secret.OwnerReferences) > 0 || secret.Labels[esv1.LabelOwner] != "" {
				return fmt.Errorf("it is owned: %w %v", err, secret.ObjectMeta)
			}

			return nil
		})
	})

	t.Run("Orphan leaves alone what another controller owns", func(t *testing.T) {
		made := ownedSecret(t, ns, "operated", map[string]string{"own": "theirs", "a": "theirs"})
		apply(t, ns, es("taker", "  target: {name: operated, creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		failing(t, ns, "taker", `Secret "operated" is owned by ServiceAccount "owner-of-operated"`)

		if secret, err := getSecret(t.Context(), ns, "operated"); err != nil || secret.ResourceVersion != made.ResourceVersion {
			t.Errorf("it was written to: %v %v", secret, err)
		}
	})

	t.Run("Orphan takes over what nobody owns", func(t *testing.T) {
		made := newSecret(t, ns, "found", corev1.SecretTypeOpaque, map[string]string{"own": "theirs"})
		apply(t, ns, es("finder", "  target: {name: found, creationPolicy: Orphan}\n  dataFrom: [{extract: {key: db}}]\n"))
		synced(t, ns, "finder")

		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, dataOf(t, ns, "found")); diff != "" {
			t.Errorf("data (-want +got):\n%s", diff)
		}

		if secret, err := getSecret(t.Context(), ns, "found"); err != nil || secret.UID != made.UID {
			t.Errorf("it was made anew: %v", err)
		}
	})

	t.Run("a Secret of another type keeps it, unless the template asks for one", func(t *testing.T) {
		for _, policy := range []string{"Owner", "Orphan"} {
			name := "typed-" + strings.ToLower(policy)
			made := newSecret(t, ns, name, "example.com/own", map[string]string{"own": "theirs"})
			spec := func(template string) string {
				return es(name, "  target: {creationPolicy: "+policy+template+"}\n  dataFrom: [{extract: {key: db}}]\n")
			}

			apply(t, ns, spec(""))
			holds(t, ns, name, "a", "1")
			synced(t, ns, name)

			secret, err := getSecret(t.Context(), ns, name)
			if err != nil || secret.UID != made.UID || secret.Type != "example.com/own" || len(secret.Data) != 2 {
				t.Fatalf("%s: %v %v %v", policy, secret.ObjectMeta, secret.Type, err)
			}

			// Nothing but the type is new: it must be missed.
			apply(t, ns, spec(", template: {type: example.com/other}"))
			failing(t, ns, name, "exists with another type than example.com/other")
			apply(t, ns, spec(", template: {type: example.com/own}"))
			synced(t, ns, name)
		}
	})

	t.Run("a finalizer that is taken out of the template goes", func(t *testing.T) {
		spec := func(finalizers string) string {
			return es("final", "  target: {template: {metadata: {finalizers: ["+finalizers+"]}}}\n  dataFrom: [{extract: {key: db}}]\n")
		}
		has := func(want ...string) {
			t.Helper()
			eventually(t, func(ctx context.Context) error {
				secret, err := getSecret(ctx, ns, "final")
				if err == nil && !slices.Equal(secret.Finalizers, want) {
					err = fmt.Errorf("finalizers: %v", secret.Finalizers)
				}

				return err
			})
		}

		apply(t, ns, spec("example.com/one, example.com/two"))
		has("example.com/one", "example.com/two")
		apply(t, ns, spec("example.com/two"))
		has("example.com/two")
		apply(t, ns, spec(""))
		has()
	})

	t.Run("the former target stays until there is another", func(t *testing.T) {
		apply(t, ns, es("moves", "  dataFrom: [{extract: {key: db}}]\n"))
		synced(t, ns, "moves")
		ownedSecret(t, ns, "taken", nil)
		apply(t, ns, es("moves", "  target: {name: taken}\n  dataFrom: [{extract: {key: db}}]\n"))
		failing(t, ns, "moves", `Secret "taken" is owned by another controller`)
		holds(t, ns, "moves", "a", "1")
		apply(t, ns, es("moves", "  target: {name: free-name}\n  dataFrom: [{extract: {key: db}}]\n"))
		holds(t, ns, "free-name", "a", "1")
		isGone(t, ns, "moves")
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

		apply(t, ns, es("identity", "  target: {name: token, creationPolicy: Merge}\n  dataFrom: [{extract: {key: db}}]\n"))
		failing(t, ns, "identity", "kubernetes.io/service-account-token", "never written to")
	})
}

func TestImmutableTargets(t *testing.T) {
	ns := newNamespace(t)
	apply(t, ns, fakeWith(oneKey)+es("frozen", "  target: {immutable: true}\n  dataFrom: [{extract: {key: db}}]\n"))
	synced(t, ns, "frozen")

	secret, err := getSecret(t.Context(), ns, "frozen")
	if err != nil {
		t.Fatal(err)
	}

	if secret.Immutable == nil || !*secret.Immutable {
		t.Fatal("the target is not immutable")
	}

	apply(t, ns, fakeWith("  - {key: db, value: '{\"a\":\"changed\"}'}\n"))
	time.Sleep(3 * time.Second)
	synced(t, ns, "frozen")
	holds(t, ns, "frozen", "a", "1")

	// Without the field the target would have to change, and cannot.
	apply(t, ns, es("frozen", "  dataFrom: [{extract: {key: db}}]\n"))
	failing(t, ns, "frozen", `Secret "frozen" is immutable, and differs`)

	if err := product.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	synced(t, ns, "frozen")
	holds(t, ns, "frozen", "a", "changed")
}

func TestDeletionPolicies(t *testing.T) {
	ns := newNamespace(t)
	full := "  - {key: a, value: \"1\"}\n  - {key: b, value: \"2\"}\n"
	entries := "  data: [{secretKey: a, remoteRef: {key: a}}, {secretKey: b, remoteRef: {key: b}}]\n"

	apply(t, ns, fakeWith(full)+
		es("retain", entries)+
		es("delete", "  target: {deletionPolicy: Delete}\n"+entries)+
		es("merge", "  target: {deletionPolicy: Merge}\n"+entries)+
		es("templated", "  target: {deletionPolicy: Delete, template: {data: {out: '{{ .a }}'}}}\n  data: [{secretKey: a, remoteRef: {key: a}}]\n")+
		es("property", "  target: {deletionPolicy: Delete}\n  data: [{secretKey: a, remoteRef: {key: a, property: none}}]\n"))

	for _, name := range []string{"retain", "delete", "merge"} {
		synced(t, ns, name)
	}

	failing(t, ns, "property", "key \"a\" property \"none\"")

	// One of two is gone.
	apply(t, ns, fakeWith("  - {key: a, value: \"1\"}\n"))
	failing(t, ns, "retain", `spec.data[1]`, `key "b"`, `secret "b" does not exist`)

	for _, name := range []string{"delete", "merge"} {
		reasonIs(t, ns, name, esv1.ReasonSecretSynced, `left out: spec.data[1] (key "b")`)

		if diff := cmp.Diff(map[string]string{"a": "1"}, dataOf(t, ns, name)); diff != "" {
			t.Errorf("%s: data (-want +got):\n%s", name, diff)
		}
	}

	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, dataOf(t, ns, "retain")); diff != "" {
		t.Errorf("retain: data (-want +got):\n%s", diff)
	}

	// An error is no proof: nothing goes.
	apply(t, ns, strings.Replace(fakeWith("  - {key: other, value: \"1\"}\n"), "  data:\n", "  error: {code: Unavailable}\n  data:\n", 1))
	failing(t, ns, "delete", "the config asks for this error")
	holds(t, ns, "delete", "a", "1")

	// All are gone.
	apply(t, ns, fakeWith("  - {key: other, value: \"1\"}\n"))
	reasonIs(t, ns, "delete", esv1.ReasonSecretDeleted, "the stores have nothing for it")
	isGone(t, ns, "delete")
	reasonIs(t, ns, "merge", esv1.ReasonSecretSynced, "left out: spec.data[0]")

	if diff := cmp.Diff(map[string]string{}, dataOf(t, ns, "merge")); diff != "" {
		t.Errorf("merge: data (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, dataOf(t, ns, "retain")); diff != "" {
		t.Errorf("retain: data (-want +got):\n%s", diff)
	}

	// A template that needs what is gone keeps nothing alive.
	reasonIs(t, ns, "templated", esv1.ReasonSecretDeleted)
	isGone(t, ns, "templated")

	// And come back.
	apply(t, ns, fakeWith(full))
	holds(t, ns, "templated", "out", "1")

	for _, name := range []string{"retain", "delete", "merge"} {
		holds(t, ns, name, "b", "2")
		reasonIs(t, ns, name, esv1.ReasonSecretSynced)
	}
}

// Drift is repaired from what was fetched last: somebody who keeps changing a
// target must not make the operator read the store each time.
func TestDriftReadsNothing(t *testing.T) {
	ns := newNamespace(t)
	write(t, "secret/"+ns+"/db", map[string]any{"a": "1"})
	vaultStore(t, ns, backend.RootToken())
	eventuallyReady(t, ns)

	manifest := es("app", "  data: [{secretKey: a, remoteRef: {key: "+ns+"/db, property: a}}]\n")
	apply(t, ns, strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 1h", 1))
	synced(t, ns, "app")

	path := "GET /v1/secret/data/" + ns + "/db"
	reads := backend.Requests()[path]

	for i := range 5 {
		secret, err := getSecret(t.Context(), ns, "app")
		if err != nil {
			t.Fatal(err)
		}

		secret.Data["a"] = fmt.Appendf(nil, "drift %d", i)
		if err := product.Client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}

		holds(t, ns, "app", "a", "1")
	}

	if err := product.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}); err != nil {
		t.Fatal(err)
	}

	holds(t, ns, "app", "a", "1")

	if n := backend.Requests()[path] - reads; n != 0 {
		t.Errorf("six repairs cost %d reads at Vault", n)
	}
}

// Who keeps changing a target does not keep it from being refreshed: each of
// its changes is repaired from memory, more and more slowly, but the interval and
// the annotation are obeyed.
func TestADisputedTargetIsRefreshed(t *testing.T) {
	ns := newNamespace(t)
	manifest := es("app", "  data: [{secretKey: a, remoteRef: {key: a}}]\n")
	apply(t, ns, fakeWith("  - {key: a, value: old}\n")+strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 5s", 1))
	synced(t, ns, "app")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var disputing sync.WaitGroup

	disputing.Go(func() {
		for ctx.Err() == nil {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}
			_ = product.Client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte(`{"data":{"extra":"eA=="}}`)), client.FieldOwner("somebody"))

			time.Sleep(20 * time.Millisecond)
		}
	})

	// By now, a repair is let through every half a minute only.
	time.Sleep(20 * time.Second)

	refreshed := func(why string, ask func()) {
		t.Helper()

		before := synced(t, ns, "app").Status.RefreshTime

		// The time of a refresh counts in seconds.
		time.Sleep(1100 * time.Millisecond)
		ask()

		within(t, 8*time.Second, func(ctx context.Context) error {
			es, _, err := getES(ctx, ns, "app")
			if err == nil && !es.Status.RefreshTime.After(before.Time) {
				err = fmt.Errorf("%s: not refreshed since %s", why, before)
			}

			return err
		})
	}

	refreshed("the interval", func() {})
	apply(t, ns, strings.Replace(manifest, "refreshInterval: 1s", "refreshPolicy: CreatedOnce\n  refreshInterval: 1h", 1))
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
	ns := newNamespace(t)
	templates := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: templates}\ndata: {x: 'a={{ .a }}'}\n"
	manifest := es("app", "  target: {template: {templateFrom: [{configMap: {name: templates, items: [{key: x}]}}]}}\n  data: [{secretKey: a, remoteRef: {key: a}}]\n")
	apply(t, ns, fakeWith("  - {key: a, value: \"1\"}\n")+templates+strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 1h", 1))
	before := synced(t, ns, "app").Status.RefreshTime

	if out, err := product.Kubectl(t.Context(), "", "-n", ns, "delete", "configmap", "templates"); err != nil {
		t.Fatal(out, err)
	}

	failing(t, ns, "app", `ConfigMap "templates" does not exist`)
	apply(t, ns, templates)

	if after := synced(t, ns, "app").Status.RefreshTime; !after.Equal(&before) {
		t.Errorf("it was read again, from %s to %s", before, after)
	}
}

// The annotation works where nothing else makes an ExternalSecret sync.
func TestForceSync(t *testing.T) {
	ns := newNamespace(t)
	apply(t, ns, fakeWith("  - {key: a, value: old}\n"))

	for name, policy := range map[string]string{"once": "  refreshPolicy: CreatedOnce\n", "never": "", "onchange": "  refreshPolicy: OnChange\n"} {
		manifest := es(name, policy+"  data: [{secretKey: a, remoteRef: {key: a}}]\n")
		apply(t, ns, strings.Replace(manifest, "refreshInterval: 1s", "refreshInterval: 0s", 1))
		synced(t, ns, name)
	}

	apply(t, ns, fakeWith("  - {key: a, value: new}\n"))
	time.Sleep(2 * time.Second)

	for _, name := range []string{"once", "never", "onchange"} {
		holds(t, ns, name, "a", "old")

		if out, err := product.Kubectl(t.Context(), "", "-n", ns, "annotate", "externalsecret", name, "external-secrets.io/force-sync=1"); err != nil {
			t.Fatal(out, err)
		}

		holds(t, ns, name, "a", "new")
	}
}
