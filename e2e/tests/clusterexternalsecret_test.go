package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	collector "github.com/external-secrets/eso/e2e/load"
)

// labelTeam is what the tests' selectors ask for.
const labelTeam = "test.example/team"

// fanOut is a ClusterExternalSecret that lives as long as its test. Its name
// is that of a namespace which the test made, and which no selector matches.
func fanOut(t *testing.T, name, spec string) {
	t.Helper()

	apply(t, name, fanOutManifest(name, spec))
	t.Cleanup(func() {
		_ = product.Client.Delete(context.Background(), &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
}

func fanOutManifest(name, spec string) string {
	return fmt.Sprintf(`
apiVersion: external-secrets.io/v1
kind: ClusterExternalSecret
metadata:
  name: %s
spec:
  externalSecretSpec:
    secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
    data:
    - {secretKey: password, remoteRef: {key: db, property: password}}
%s`, name, spec)
}

// selecting is the part of a spec that selects a team.
func selecting(team string) string {
	return "  externalSecretName: app\n  namespaceSelectors:\n  - matchLabels: {" + labelTeam + ": " + team + "}\n"
}

func label(t *testing.T, namespace, team string) {
	t.Helper()

	value := any(team)
	if team == "" {
		value = nil
	}

	merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, map[string]any{"metadata": map[string]any{"labels": map[string]any{labelTeam: value}}})
}

// merge changes an object as somebody else would.
func merge(t *testing.T, object client.Object, change map[string]any) {
	t.Helper()

	patch, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}

	if err := product.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
}

func getFanOut(ctx context.Context, name string) (*esv1.ClusterExternalSecret, *esv1.Condition, error) {
	ces := &esv1.ClusterExternalSecret{}
	if err := product.Client.Get(ctx, client.ObjectKey{Name: name}, ces); err != nil {
		return nil, nil, err
	}

	for i := range ces.Status.Conditions {
		if ces.Status.Conditions[i].Type == esv1.ConditionReady {
			return ces, &ces.Status.Conditions[i], nil
		}
	}

	return ces, &esv1.Condition{}, nil
}

// provisioned waits until exactly these namespaces have an ExternalSecret of
// that name, made by the ClusterExternalSecret, and it says so.
func provisioned(t *testing.T, name, child string, namespaces ...string) {
	t.Helper()

	slices.Sort(namespaces)

	eventually(t, func(ctx context.Context) error {
		ces, ready, err := getFanOut(ctx, name)
		if err != nil {
			return err
		}

		if ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != ces.Generation || ready.Reason != esv1.ReasonNamespacesProvisioned {
			return fmt.Errorf("ClusterExternalSecret %s is not Ready: %+v", name, *ready)
		}

		if diff := cmp.Diff(namespaces, ces.Status.ProvisionedNamespaces); diff != "" && len(namespaces)+len(ces.Status.ProvisionedNamespaces) > 0 {
			return fmt.Errorf("provisionedNamespaces (-want +got):\n%s", diff)
		}

		if len(ces.Status.FailedNamespaces) > 0 || ces.Status.ExternalSecretName != child {
			return fmt.Errorf("status: %+v", ces.Status)
		}

		var want []string
		for _, namespace := range namespaces {
			want = append(want, namespace+"/"+child)
		}

		if diff := cmp.Diff(want, childrenOf(ctx, ces)); diff != "" {
			return fmt.Errorf("ExternalSecrets (-want +got):\n%s", diff)
		}

		return nil
	})
}

func childrenOf(ctx context.Context, ces *esv1.ClusterExternalSecret) []string {
	var (
		list  esv1.ExternalSecretList
		names []string
	)

	if err := product.Client.List(ctx, &list); err != nil {
		return []string{err.Error()}
	}

	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], ces) {
			names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
	}

	slices.Sort(names)

	return names
}

// child waits until the ExternalSecret app passes a check, and gives it.
func child(t *testing.T, namespace string, check func(*esv1.ExternalSecret) error) *esv1.ExternalSecret {
	t.Helper()

	var found *esv1.ExternalSecret

	eventually(t, func(ctx context.Context) error {
		es, _, err := getES(ctx, namespace, "app")
		if err != nil {
			return err
		}

		found = es

		return check(es)
	})

	return found
}

// absent waits until an object is gone. It is patient: Kubernetes' garbage
// collection looks for new kinds every half minute only.
func absent(t *testing.T, object client.Object) {
	t.Helper()

	within(t, 2*time.Minute, func(ctx context.Context) error {
		err := product.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}

		if err == nil {
			err = errors.New("it is there")
		}

		return fmt.Errorf("%T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
	})
}

func TestClusterExternalSecret(t *testing.T) {
	name, a, b, c := newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)
	for _, ns := range []string{a, b, c} {
		apply(t, ns, fakeStore)
	}

	label(t, a, name)
	label(t, b, name+"-2")

	fanOut(t, name, selecting(name)+`
  externalSecretMetadata:
    labels: {team: a}
    annotations: {note: kept}
`)

	change := func(t *testing.T, spec string) {
		t.Helper()
		apply(t, name, fanOutManifest(name, spec))
	}

	t.Run("a selector decides", func(t *testing.T) {
		provisioned(t, name, "app", a)
		holds(t, a, "app", "password", "s3cret")

		es := synced(t, a, "app")
		if es.Labels["team"] != "a" || es.Annotations["note"] != "kept" {
			t.Errorf("labels %v, annotations %v", es.Labels, es.Annotations)
		}

		owner := metav1.GetControllerOf(es)
		if owner == nil || owner.Name != name || owner.Kind != "ClusterExternalSecret" || len(es.Finalizers) > 0 {
			t.Errorf("owner %v, finalizers %v", owner, es.Finalizers)
		}
	})

	t.Run("any of several selectors, and names", func(t *testing.T) {
		change(t, `  externalSecretName: app
  namespaceSelectors:
  - matchLabels: {`+labelTeam+`: `+name+`}
  - matchExpressions: [{key: `+labelTeam+`, operator: In, values: [`+name+`-2]}]
  namespaces: [`+c+`, not-there]
`)
		provisioned(t, name, "app", a, b, c)

		if _, ready, _ := getFanOut(t.Context(), name); !strings.Contains(ready.Message, "3 of 3 namespaces") || !strings.Contains(ready.Message, "spec.namespaces is deprecated") {
			t.Errorf("message: %s", ready.Message)
		}

		es := child(t, a, func(*esv1.ExternalSecret) error { return nil })
		if es.Labels["team"] != "" || es.Annotations["note"] != "" {
			t.Errorf("labels and annotations that are no longer wanted: %v, %v", es.Labels, es.Annotations)
		}
	})

	t.Run("the deprecated selector", func(t *testing.T) {
		change(t, "  externalSecretName: app\n  namespaceSelector: {matchLabels: {"+labelTeam+": "+name+"-2}}\n")
		provisioned(t, name, "app", b)
		absent(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "app"}})
	})

	t.Run("a label that changes", func(t *testing.T) {
		change(t, selecting(name))
		provisioned(t, name, "app", a)
		label(t, b, name)
		provisioned(t, name, "app", a, b)
		label(t, a, "")
		provisioned(t, name, "app", b)
		label(t, a, name)
		provisioned(t, name, "app", a, b)
	})

	t.Run("another name", func(t *testing.T) {
		change(t, strings.Replace(selecting(name), "app", "renamed", 1))
		provisioned(t, name, "renamed", a, b)
		absent(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a, Name: "app"}})
		holds(t, a, "renamed", "password", "s3cret")
	})

	t.Run("a selector that nobody can read touches nothing", func(t *testing.T) {
		change(t, "  externalSecretName: renamed\n  namespaceSelectors:\n  - matchExpressions: [{key: a, operator: Like, values: [b]}]\n")

		eventually(t, func(ctx context.Context) error {
			ces, ready, err := getFanOut(ctx, name)
			if err == nil && (ready.Reason != esv1.ReasonInvalidSelector || !strings.Contains(ready.Message, "namespaceSelectors[0]")) {
				err = fmt.Errorf("condition: %+v", *ready)
			}

			if err == nil && len(childrenOf(ctx, ces)) != 2 {
				err = fmt.Errorf("ExternalSecrets: %v", childrenOf(ctx, ces))
			}

			return err
		})
	})

	t.Run("what it made goes with it", func(t *testing.T) {
		if err := product.Client.Delete(t.Context(), &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}

		absent(t, &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}})

		for _, ns := range []string{a, b} {
			absent(t, &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "renamed"}})
			absent(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "renamed"}})
		}
	})
}

// Somebody else's ExternalSecret of the name is left alone and reported; the
// other namespaces have theirs, and so has this one as soon as it can.
func TestClusterExternalSecretLeavesOthersAlone(t *testing.T) {
	name, a, b := newNamespace(t), newNamespace(t), newNamespace(t)
	for _, ns := range []string{a, b} {
		apply(t, ns, fakeStore)
		label(t, ns, name)
	}

	apply(t, a, simpleES("app", "store"))
	before := synced(t, a, "app")

	fanOut(t, name, selecting(name))

	eventually(t, func(ctx context.Context) error {
		ces, ready, err := getFanOut(ctx, name)
		if err != nil {
			return err
		}

		if ready.Status != metav1.ConditionFalse || ready.Reason != esv1.ReasonNamespacesFailed || !strings.Contains(ready.Message, "1 of 2 namespaces: "+a+`: ExternalSecret "app" exists`) {
			return fmt.Errorf("condition: %+v", *ready)
		}

		if len(ces.Status.FailedNamespaces) != 1 || ces.Status.FailedNamespaces[0].Namespace != a || !slices.Equal(ces.Status.ProvisionedNamespaces, []string{b}) {
			return fmt.Errorf("status: %+v", ces.Status)
		}

		return nil
	})

	after := synced(t, a, "app")
	if after.UID != before.UID || after.Generation != before.Generation || len(after.OwnerReferences) > 0 {
		t.Errorf("it was touched: %+v", after.ObjectMeta)
	}

	if err := product.Client.Delete(t.Context(), after); err != nil {
		t.Fatal(err)
	}

	provisioned(t, name, "app", a, b)
}

// What the operator relies on when it applies under a UID: the API server
// refuses where another object has taken the name, and where none has.
func TestClusterExternalSecretAppliesUnderUID(t *testing.T) {
	ns := newNamespace(t)
	apply(t, ns, fakeStore+simpleES("app", "store"))
	before := synced(t, ns, "app")

	for _, name := range []string{"app", "absent"} {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"refreshInterval": "5m"}}}
		object.SetGroupVersionKind(esv1.GroupVersion.WithKind("ExternalSecret"))
		object.SetNamespace(ns)
		object.SetName(name)
		object.SetUID("another")

		err := product.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("somebody"), client.ForceOwnership)
		if refused := apierrors.IsConflict(err) || (apierrors.IsInvalid(err) && strings.Contains(err.Error(), "metadata.uid")); !refused {
			t.Errorf("%s: %v", name, err)
		}
	}

	if after := synced(t, ns, "app"); after.Generation != before.Generation {
		t.Error("it was touched")
	}
}

// What somebody changes or deletes is set right at once; what he adds to the
// metadata is his own.
func TestClusterExternalSecretRepairs(t *testing.T) {
	cases := []struct {
		why    string
		change map[string]any
	}{
		{"a field that has another value", map[string]any{"spec": map[string]any{"secretStoreRef": map[string]any{"name": "other"}}}},
		{"fields that were added", map[string]any{"spec": map[string]any{"target": map[string]any{"name": "mine", "template": map[string]any{"data": map[string]any{"a": "b"}}}}}},
		{"a field that was removed", map[string]any{"spec": map[string]any{"data": nil}}},
		{"a label that has another value", map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "b"}}}},
		{"a label that was removed", map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": nil}}}},
		{"all of it was deleted", nil},
	}

	name := newNamespace(t)
	namespaces := make([]string, len(cases))

	for i := range cases {
		namespaces[i] = newNamespace(t)
		apply(t, namespaces[i], fakeStore)
		label(t, namespaces[i], name)
	}

	fanOut(t, name, selecting(name)+"  externalSecretMetadata: {labels: {team: a}}\n")
	provisioned(t, name, "app", slices.Clone(namespaces)...)

	for i, c := range cases {
		t.Run(c.why, func(t *testing.T) {
			wanted := synced(t, namespaces[i], "app")
			key := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: namespaces[i], Name: "app"}}
			deleted := c.change == nil

			if deleted {
				if err := product.Client.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			} else {
				merge(t, key.DeepCopy(), map[string]any{"metadata": map[string]any{"labels": map[string]any{"mine": "kept"}}})
				merge(t, key, c.change)
			}

			child(t, namespaces[i], func(es *esv1.ExternalSecret) error {
				if diff := cmp.Diff(wanted.Spec, es.Spec); diff != "" || es.Labels["team"] != "a" {
					return fmt.Errorf("labels %v, spec (-want +got):\n%s", es.Labels, diff)
				}

				if (es.UID != wanted.UID) != deleted || (es.Labels["mine"] == "kept") == deleted {
					return fmt.Errorf("made anew, or without somebody else's label: %v", es.ObjectMeta)
				}

				return nil
			})

			synced(t, namespaces[i], "app")
		})
	}
}

func TestClusterExternalSecretForcesSyncs(t *testing.T) {
	name, a := newNamespace(t), newNamespace(t)
	apply(t, a, fakeStore)
	label(t, a, name)
	fanOut(t, name, selecting(name))
	provisioned(t, name, "app", a)

	first := synced(t, a, "app").Status.RefreshTime
	ces := &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}}

	time.Sleep(time.Second) // refreshTime has no fractions
	merge(t, ces.DeepCopy(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{esv1.AnnotationForceSync: "now"}}})
	child(t, a, func(es *esv1.ExternalSecret) error {
		if es.Annotations[esv1.AnnotationForceSync] != "now" || !es.Status.RefreshTime.After(first.Time) {
			return fmt.Errorf("annotations %v, synced %s, before %s", es.Annotations, es.Status.RefreshTime, first)
		}

		return nil
	})

	merge(t, ces.DeepCopy(), map[string]any{"metadata": map[string]any{"annotations": map[string]any{esv1.AnnotationForceSync: nil}}})
	child(t, a, func(es *esv1.ExternalSecret) error {
		if value, ok := es.Annotations[esv1.AnnotationForceSync]; ok {
			return fmt.Errorf("the annotation is still there: %q", value)
		}

		return nil
	})
}

// What an older operator made is taken over: the ExternalSecret keeps its UID
// and loses what is not wanted, and the finalizers go.
func TestClusterExternalSecretAdopts(t *testing.T) {
	name, a, left := newNamespace(t), newNamespace(t), newNamespace(t)
	apply(t, a, fakeStore)

	finalizer := esv1.FinalizerNamespacePrefix + name
	cleanup := "externalsecrets.external-secrets.io/clusterexternalsecret-cleanup"

	// It matches nothing yet.
	fanOut(t, name, selecting(name))

	ces := &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}}
	merge(t, ces, map[string]any{"metadata": map[string]any{"finalizers": []string{cleanup}}})

	old := &esv1.ExternalSecret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a, Name: "app", Labels: map[string]string{"stale": "label"},
			Annotations:     map[string]string{esv1.AnnotationForceSync: "stale"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ces, esv1.GroupVersion.WithKind("ClusterExternalSecret"))},
			Finalizers:      []string{esv1.FinalizerCleanup},
		},
		Spec: *ces.Spec.ExternalSecretSpec.DeepCopy(),
	}
	old.Spec.Target = &esv1.Target{DeletionPolicy: esv1.DeletionRetain}

	// The older operator is not there to mind the namespace's label.
	if err := product.StopOperator(); err != nil {
		t.Fatal(err)
	}

	err := product.Client.Create(t.Context(), old, client.FieldOwner("external-secrets"))

	label(t, a, name)

	for _, ns := range []string{a, left} {
		merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, map[string]any{"metadata": map[string]any{"finalizers": []string{finalizer, "test.example/mine"}}})
	}

	if err := errors.Join(err, product.RestartOperator(context.Background())); err != nil {
		t.Fatal(err)
	}

	provisioned(t, name, "app", a)

	es := child(t, a, func(es *esv1.ExternalSecret) error {
		if len(es.Labels) > 0 || len(es.Annotations) > 0 || es.Spec.Target != nil {
			return fmt.Errorf("labels %v, annotations %v, target %v", es.Labels, es.Annotations, es.Spec.Target)
		}

		return nil
	})
	if es.UID != old.UID {
		t.Error("the ExternalSecret was made anew")
	}

	finalizers := func(ns string, want ...string) {
		t.Helper()
		eventually(t, func(ctx context.Context) error {
			namespace := &corev1.Namespace{}

			err := product.Client.Get(ctx, client.ObjectKey{Name: ns}, namespace)
			if err == nil && !slices.Equal(namespace.Finalizers, want) {
				err = fmt.Errorf("Namespace %s has the finalizers %v", ns, namespace.Finalizers)
			}

			return err
		})
	}

	finalizers(a, "test.example/mine")
	finalizers(left, "test.example/mine")

	for _, ns := range []string{a, left} {
		merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}

	if err := product.Client.Delete(t.Context(), ces.DeepCopy()); err != nil {
		t.Fatal(err)
	}

	absent(t, ces.DeepCopy())

	// A Namespace whose ClusterExternalSecret is long gone can be deleted.
	merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left}}, map[string]any{"metadata": map[string]any{"finalizers": []string{finalizer}}})

	if err := product.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left}}); err != nil {
		t.Fatal(err)
	}

	absent(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left}})
}

// tidy waits at the end of a test until the namespaces that it deletes are gone:
// what Kubernetes does in so many would be counted by the tests that count. It
// must be called before they are made.
func tidy(t *testing.T) {
	t.Helper()

	t.Cleanup(func() {
		err := wait.PollUntilContextTimeout(context.Background(), 500*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			var list corev1.NamespaceList
			err := product.Client.List(ctx, &list)

			return err == nil && !slices.ContainsFunc(list.Items, func(ns corev1.Namespace) bool { return ns.DeletionTimestamp != nil }), nil
		})
		if err != nil {
			t.Errorf("namespaces are still being deleted: %v", err)
		}
	})
}

// Fifty namespaces cost one write each and a status; then nothing, however
// often they are looked at.
func TestClusterExternalSecretCosts(t *testing.T) {
	tidy(t)

	counted["clusterexternalsecrets"] = true

	// One that does not know the kinds yet asks for every owner.
	if err := collector.AwaitCollector(t.Context(), product.Client); err != nil {
		t.Fatal(err)
	}

	const n = 50

	name := newNamespace(t)

	var namespaces []string
	for range n {
		ns := newNamespace(t)
		label(t, ns, name)
		namespaces = append(namespaces, ns)
	}

	quiet(t)

	requests := apiRequests(t)
	began := time.Now()

	fanOut(t, name, selecting(name)+"  refreshTime: 300ms\n")
	provisioned(t, name, "app", namespaces...)
	t.Logf("%d namespaces in %s", n, time.Since(began).Round(time.Millisecond))

	got := since(requests, apiRequests(t))
	if got["POST externalsecrets"] != n || got["PATCH clusterexternalsecrets/status"] != 1 {
		t.Errorf("requests: %v", got)
	}

	quiet(t)

	requests = apiRequests(t)

	time.Sleep(2 * time.Second)

	if got := ours(since(requests, apiRequests(t))); len(got) > 0 {
		t.Errorf("requests at rest: %v", got)
	}

	t.Run("a change costs a write per namespace", func(t *testing.T) {
		requests := apiRequests(t)

		merge(t, &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}},
			map[string]any{"spec": map[string]any{"externalSecretMetadata": map[string]any{"labels": map[string]any{"round": "2"}}}})

		for _, ns := range namespaces {
			child(t, ns, func(es *esv1.ExternalSecret) error {
				if es.Labels["round"] != "2" {
					return fmt.Errorf("labels of %s: %v", ns, es.Labels)
				}

				return nil
			})
		}

		// The first time that each is turned from created into applied.
		got := ours(since(requests, apiRequests(t)))
		delete(got, "GET externalsecrets") // the test's own

		if diff := cmp.Diff(map[string]int{
			"APPLY externalsecrets": n, "PATCH externalsecrets": n,
			// The test's own, and the status.
			"PATCH clusterexternalsecrets": 1, "PATCH clusterexternalsecrets/status": 1,
		}, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// ours leaves out what Kubernetes does in namespaces that other tests have
// left, and what the syncs themselves cost.
func ours(requests map[string]int) map[string]int {
	maps.DeleteFunc(requests, func(request string, _ int) bool {
		verb, resource, _ := strings.Cut(request, " ")

		return verb == "DELETE" || verb == "LIST" ||
			(resource != "externalsecrets" && !strings.HasPrefix(resource, "clusterexternalsecrets") && request != "PATCH namespaces")
	})

	return requests
}

func TestClusterExternalSecretAdmission(t *testing.T) {
	for _, c := range []struct{ why, spec, want string }{
		{"a duration that is none", "  refreshTime: soon\n", "refreshTime"},
		{"a negative duration", "  refreshTime: -1s\n", "zero or more"},
		{"a name that none can have", "  externalSecretName: A_B\n", "externalSecretName"},
		{"a namespace that none can have", "  namespaces: [A_B]\n", "namespaces"},
		{"an unknown field is a typing error", "  namespaceselectors: []\n", "field not declared in schema"},
	} {
		t.Run(c.why, func(t *testing.T) {
			out, err := product.Kubectl(t.Context(), fanOutManifest("refused", c.spec), "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("want a refusal with %q, got: %v\n%s", c.want, err, out)
			}
		})
	}
}

// Without the right to patch Namespaces everything but the finalizers of older
// operators works, and these are told of.
func TestClusterExternalSecretWithoutTheRightToPatchNamespaces(t *testing.T) {
	tidy(t)

	binding := &rbacv1.ClusterRoleBinding{}
	if err := product.Client.Get(t.Context(), client.ObjectKey{Name: "external-secrets-operator-namespace-finalizers"}, binding); err != nil {
		t.Fatal(err)
	}

	if err := product.Client.Delete(t.Context(), binding.DeepCopy()); err != nil {
		t.Fatal(err)
	}

	binding.ResourceVersion, binding.UID = "", ""

	restore := sync.OnceFunc(func() {
		if err := product.Client.Create(context.Background(), binding); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)

	name, a, b := newNamespace(t), newNamespace(t), newNamespace(t)
	for _, ns := range []string{a, b} {
		label(t, ns, name)
	}

	merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a}}, map[string]any{"metadata": map[string]any{"finalizers": []string{esv1.FinalizerNamespacePrefix + name}}})
	fanOut(t, name, selecting(name))

	eventually(t, func(ctx context.Context) error {
		ces, ready, err := getFanOut(ctx, name)
		if err != nil {
			return err
		}

		if !strings.Contains(ready.Message, "1 of 2 namespaces: "+a+": cannot take the finalizer") || !strings.Contains(ready.Message, "forbidden") {
			return fmt.Errorf("condition: %+v", *ready)
		}

		if diff := cmp.Diff(2, len(childrenOf(ctx, ces))); diff != "" {
			return fmt.Errorf("ExternalSecrets (-want +got):\n%s", diff)
		}

		return nil
	})

	restore()
	provisioned(t, name, "app", a, b)
}
