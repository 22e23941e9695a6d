package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	// And come back.
	apply(t, ns, fakeWith(full))

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
