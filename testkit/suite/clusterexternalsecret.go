package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// LabelTeam is what the tests' selectors ask for.
const LabelTeam = "test.example/team"

// FanOut is a ClusterExternalSecret that lives as long as its test. Its name
// is that of a namespace which the test created, and which no selector matches.
func (s *Suite) FanOut(t *testing.T, name, spec string) {
	t.Helper()

	s.Apply(t, name, FanOutManifest(name, spec))
	t.Cleanup(func() {
		_ = s.Client.Delete(context.Background(), &esv1.ClusterExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
}

// FanOutManifest is a ClusterExternalSecret with further lines of its spec.
func FanOutManifest(name, spec string) string {
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

// Selecting is the part of a spec that selects a team.
func Selecting(team string) string {
	return "  externalSecretName: app\n  namespaceSelectors:\n  - matchLabels: {" + LabelTeam + ": " + team + "}\n"
}

// Label sets the label LabelTeam of a namespace, or removes it where team is empty.
func (s *Suite) Label(t *testing.T, namespace, team string) {
	t.Helper()

	value := any(team)
	if team == "" {
		value = nil
	}

	s.Merge(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, map[string]any{"metadata": map[string]any{"labels": map[string]any{LabelTeam: value}}})
}

// Merge changes an object as another user would.
func (s *Suite) Merge(t *testing.T, object client.Object, change map[string]any) {
	t.Helper()

	patch, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}

	if err := s.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("another-user")); err != nil {
		t.Fatal(err)
	}
}

// ClusterExternalSecret reads a ClusterExternalSecret and its Ready condition, which
// is empty where it has none.
func (s *Suite) ClusterExternalSecret(ctx context.Context, name string) (*esv1.ClusterExternalSecret, *esv1.Condition, error) {
	ces := &esv1.ClusterExternalSecret{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, ces); err != nil {
		return nil, nil, err
	}

	for i := range ces.Status.Conditions {
		if ces.Status.Conditions[i].Type == esv1.ConditionReady {
			return ces, &ces.Status.Conditions[i], nil
		}
	}

	return ces, &esv1.Condition{}, nil
}

// Provisioned waits until exactly these namespaces have an ExternalSecret of
// that name, created by the ClusterExternalSecret, and its status says so.
func (s *Suite) Provisioned(t *testing.T, name, child string, namespaces ...string) {
	t.Helper()

	slices.Sort(namespaces)

	Eventually(t, func(ctx context.Context) error {
		ces, ready, err := s.ClusterExternalSecret(ctx, name)
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

		if diff := cmp.Diff(want, s.ChildrenOf(ctx, ces)); diff != "" {
			return fmt.Errorf("ExternalSecrets (-want +got):\n%s", diff)
		}

		return nil
	})
}

// ChildrenOf lists the ExternalSecrets that a ClusterExternalSecret controls, as
// "namespace/name".
func (s *Suite) ChildrenOf(ctx context.Context, ces *esv1.ClusterExternalSecret) []string {
	var (
		list  esv1.ExternalSecretList
		names []string
	)

	if err := s.Client.List(ctx, &list); err != nil {
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

// Child waits until the ExternalSecret app passes a check, and gives it.
func (s *Suite) Child(t *testing.T, namespace string, check func(*esv1.ExternalSecret) error) *esv1.ExternalSecret {
	t.Helper()

	var found *esv1.ExternalSecret

	Eventually(t, func(ctx context.Context) error {
		es, _, err := s.ExternalSecret(ctx, namespace, "app")
		if err != nil {
			return err
		}

		found = es

		return check(es)
	})

	return found
}

// Absent waits until an object is deleted. It is patient: Kubernetes' garbage
// collection looks for new kinds every half minute only.
func (s *Suite) Absent(t *testing.T, object client.Object) {
	t.Helper()

	Within(t, 2*time.Minute, func(ctx context.Context) error {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}

		if err == nil {
			err = errors.New("it is there")
		}

		return fmt.Errorf("%T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
	})
}

// ReasonIs waits until an ExternalSecret is Ready for a reason, with a message
// that holds every text.
func (s *Suite) ReasonIs(t *testing.T, ns, name, reason string, texts ...string) {
	t.Helper()

	Eventually(t, func(ctx context.Context) error {
		es, ready, err := s.ExternalSecret(ctx, ns, name)
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

// NewSecret creates a Secret.
func (s *Suite) NewSecret(t *testing.T, ns, name string, secretType corev1.SecretType, data map[string]string) *corev1.Secret {
	t.Helper()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: secretType, StringData: data}
	if err := s.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	return secret
}

// DeleteES deletes an ExternalSecret in the foreground, and waits until it is gone.
func (s *Suite) DeleteES(t *testing.T, ns, name string) {
	t.Helper()

	object := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := s.Client.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}

	Eventually(t, func(ctx context.Context) error {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			return fmt.Errorf("ExternalSecret %s is still there: %w", name, err)
		}

		return nil
	})
}
