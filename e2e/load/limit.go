package load

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// Limit performs the writes of a first sync, a Secret by server-side apply and a
// patch of the status, for every ExternalSecret of the load, and gives how long
// they took: what the control plane allows a client that does nothing else. It
// makes the ExternalSecrets before, and then calls begin; no operator may run,
// or it would take them up.
func (l *Load) Limit(ctx context.Context, clientset kubernetes.Interface, begin func() error) (time.Duration, error) {
	if err := l.Namespaces(ctx); err != nil {
		return 0, err
	}

	if err := l.ExternalSecrets(ctx); err != nil {
		return 0, err
	}

	if err := begin(); err != nil {
		return 0, err
	}

	began := time.Now()

	if err := parallel(ctx, workers, l.Objects, func(ctx context.Context, i int) error {
		return l.writes(ctx, clientset, l.Object(i))
	}); err != nil {
		return 0, err
	}

	return time.Since(began), nil
}

// writes are those of the operator, except for the reference to the owner:
// the garbage collector goes on to ask for owners that were deleted before it
// had seen them, while the operator is measured.
func (l *Load) writes(ctx context.Context, clientset kubernetes.Interface, name types.NamespacedName) error {
	const digest = "6b4e03423667dbb73b6e15454f0eb1abd4597f9a1b078e3f5b5a6bc7"

	data := map[string][]byte{}
	for property, content := range value(name) {
		data[property] = fmt.Append(nil, content)
	}

	secret := corev1apply.Secret(name.Name, name.Namespace).
		WithLabels(map[string]string{esv1.LabelManaged: esv1.LabelManagedValue, esv1.LabelOwner: digest}).
		WithAnnotations(map[string]string{esv1.AnnotationDataHash: digest, "reconcile.external-secrets.io/data-keys": digest[:16]}).
		WithType(corev1.SecretTypeOpaque).
		WithData(data)

	options := metav1.ApplyOptions{FieldManager: esv1.FieldManagerPrefix + name.Name, Force: true}
	if _, err := clientset.CoreV1().Secrets(name.Namespace).Apply(ctx, secret, options); err != nil {
		return fmt.Errorf("cannot apply Secret %s: %w", name, err)
	}

	now := metav1.Now()

	patch, err := json.Marshal(map[string]any{"status": esv1.ExternalSecretStatus{
		RefreshTime: now, SyncedResourceVersion: "1-" + digest, SyncedDependencies: digest[:16],
		Binding: &esv1.Binding{Name: name.Name},
		Conditions: []esv1.Condition{{
			Type: esv1.ConditionReady, Status: metav1.ConditionTrue, Reason: esv1.ReasonSecretSynced, Message: "secret synced",
			LastTransitionTime: now, ObservedGeneration: 1,
		}},
	}})
	if err != nil {
		return fmt.Errorf("cannot encode a status: %w", err)
	}

	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	if err := l.Client.Status().Patch(ctx, es, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("cannot patch the status of ExternalSecret %s: %w", name, err)
	}

	return nil
}

// Remove deletes the load's ExternalSecrets and all Secrets beside them. The
// namespaces stay, for their deletion would go on after this returns.
func (l *Load) Remove(ctx context.Context) error {
	for store := range l.Stores {
		for _, kind := range []client.Object{&esv1.ExternalSecret{}, &corev1.Secret{}} {
			if err := l.Client.DeleteAllOf(ctx, kind, client.InNamespace(l.Namespace(store))); err != nil {
				return fmt.Errorf("cannot delete all %T: %w", kind, err)
			}
		}
	}

	return nil
}
