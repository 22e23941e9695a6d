package functional

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/testkit/suite"
)

func TestSyncsEveryShapeOfData(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore+`---
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata:
  name: app
  labels: {team: a}
  annotations: {note: kept}
spec:
  refreshInterval: 1h
  secretStoreRef:
    apiVersion: secretstore.external-secrets.io/v2alpha1
    name: store
  target:
    name: app-secret
  dataFrom:
  - extract: {key: db}
  - extract: {key: odd, conversionStrategy: Unicode}
  data:
  - secretKey: password
    remoteRef: {key: db, property: password, version: "1"}
  - secretKey: nested
    remoteRef: {key: db, property: tls.enabled}
  - secretKey: decoded
    remoteRef: {key: encoded, decodingStrategy: Base64}
  - secretKey: auto
    remoteRef: {key: encoded, decodingStrategy: Auto}
  - secretKey: binary
    remoteRef: {key: binary}
  - secretKey: metadata
    remoteRef: {key: binary, metadataPolicy: Fetch, property: team}
`)

	es := product.Synced(t, ns, "app")

	secret, err := product.Secret(t.Context(), ns, "app-secret")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"user": "app", "password": "old", "port": "5432", "tls": `{"enabled":true}`,
		"a_U002f_b": "slash", "plain": "cGxhaW4=",
		"nested": "true", "decoded": "hello", "auto": "hello", "binary": "\x00\x01\x02\x03\xff", "metadata": "a",
	}

	got := map[string]string{}
	for key, value := range secret.Data {
		got[key] = string(value)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}

	if !metav1.IsControlledBy(secret, es) {
		t.Errorf("the Secret is not owned by the ExternalSecret: %v", secret.OwnerReferences)
	}

	if secret.Type != corev1.SecretTypeOpaque {
		t.Errorf("type is %q", secret.Type)
	}

	for key, value := range map[string]string{esv1.LabelManaged: "true", "team": "a"} {
		if secret.Labels[key] != value {
			t.Errorf("label %s is %q, not %q", key, secret.Labels[key], value)
		}
	}

	if secret.Annotations["note"] != "kept" || len(secret.Annotations[esv1.AnnotationDataHash]) != 56 {
		t.Errorf("annotations: %v", secret.Annotations)
	}

	if es.Status.Binding == nil || es.Status.Binding.Name != "app-secret" || es.Status.RefreshTime.IsZero() ||
		!strings.HasPrefix(es.Status.SyncedResourceVersion, "1-") {
		t.Errorf("status: %+v", es.Status)
	}

	suite.Eventually(t, func(ctx context.Context) error {
		out, err := product.Kubectl(ctx, "", "-n", ns, "get", "events", "-o", "custom-columns=R:.reason,O:.involvedObject.name", "--no-headers")
		if err == nil && !strings.Contains(out, "Created") {
			err = errors.New("there are others")
		}

		if err != nil {
			return fmt.Errorf("no event Created in %q: %w", out, err)
		}

		return nil
	})
}

func TestDeletesTheTargetWithItsOwner(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore+suite.SimpleES("app", "store"))
	es := product.Synced(t, ns, "app")

	if err := product.Client.Delete(t.Context(), es); err != nil {
		t.Fatal(err)
	}

	// The garbage collector looks for new kinds, as ExternalSecret is here,
	// every 30 seconds only.
	suite.Within(t, 90*time.Second, func(ctx context.Context) error {
		_, err := product.Secret(ctx, ns, "app")
		if err == nil {
			return errors.New("the Secret is still there")
		}

		return client.IgnoreNotFound(err)
	})
}

// Everything that a sync depends on re-triggers it at once, although the
// refresh interval is an hour.
func TestFollowsWhatItDependsOnAtOnce(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore+suite.SimpleES("app", "store"))
	product.Synced(t, ns, "app")
	product.Holds(t, ns, "app", "password", "s3cret")

	t.Run("a provider config that changes", func(t *testing.T) {
		product.Apply(t, ns, strings.ReplaceAll(suite.FakeStore, "s3cret", "changed"))
		product.Holds(t, ns, "app", "password", "changed")
	})

	t.Run("a store that is bound to another config", func(t *testing.T) {
		product.Apply(t, ns, `
apiVersion: provider.secretstore.external-secrets.io/v2alpha1
kind: Fake
metadata:
  name: other
spec:
  data:
  - {key: db, value: '{"password":"other"}'}
---
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: store
spec:
  providerConfig:
    providerRef: {kind: Fake, name: other}
`)
		product.Holds(t, ns, "app", "password", "other")
	})

	t.Run("the ExternalSecret itself", func(t *testing.T) {
		product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("app", "store"), "secretKey: password", "secretKey: renamed"))
		product.Holds(t, ns, "app", "renamed", "other")

		secret, err := product.Secret(t.Context(), ns, "app")
		if err != nil {
			t.Fatal(err)
		}

		if len(secret.Data) != 1 {
			t.Errorf("the former key stays: %d keys", len(secret.Data))
		}
	})

	t.Run("a store that comes into being", func(t *testing.T) {
		product.Apply(t, ns, suite.SimpleES("early", "late-store"))
		product.Failing(t, ns, "early", `SecretStore "late-store"`, "does not exist")
		product.Apply(t, ns, `
apiVersion: secretstore.external-secrets.io/v2alpha1
kind: SecretStore
metadata:
  name: late-store
spec:
  providerConfig:
    providerRef: {kind: Fake, name: other}
`)
		product.Holds(t, ns, "early", "password", "other")
	})

	t.Run("an annotation that forces a sync", func(t *testing.T) {
		before := product.Synced(t, ns, "app").Status.RefreshTime

		suite.Within(t, 5*time.Second, func(context.Context) error {
			if time.Since(before.Time) < 1100*time.Millisecond {
				return errors.New("status.refreshTime counts in seconds")
			}

			return nil
		})

		if _, err := product.Kubectl(t.Context(), "", "-n", ns, "annotate", "es", "app", esv1.AnnotationForceSync+"=now", "--overwrite"); err != nil {
			t.Fatal(err)
		}

		suite.Eventually(t, func(ctx context.Context) error {
			es, _, err := product.ExternalSecret(ctx, ns, "app")
			if err == nil && !es.Status.RefreshTime.After(before.Time) {
				err = fmt.Errorf("not refreshed since %s", before)
			}

			return err
		})
	})
}

// Changes of a target by another client are reverted at once.
func TestRepairsTheTarget(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore+suite.SimpleES("app", "store"))
	product.Synced(t, ns, "app")

	was, err := product.Secret(t.Context(), ns, "app")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name, patch string
	}{
		{"a value that was changed is restored", `{"data":{"password":"d3Jvbmc="}}`},
		{"a key that was added is removed", `{"data":{"extra":"d3Jvbmc="}}`},
		{"a key that was removed comes back", `{"data":{"password":null}}`},
		{"a label by which the target is known comes back", `{"metadata":{"labels":{"reconcile.external-secrets.io/managed":null}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}
			if err := product.Client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(c.patch)), client.FieldOwner("another-user")); err != nil {
				t.Fatal(err)
			}

			suite.Eventually(t, func(ctx context.Context) error {
				now, err := product.Secret(ctx, ns, "app")
				if err != nil {
					return err
				}

				if diff := cmp.Diff(was.Data, now.Data); diff != "" {
					return errors.New("data differs in its keys or values")
				}

				if now.UID != was.UID || now.Labels[esv1.LabelManaged] != "true" {
					return fmt.Errorf("labels: %v", now.Labels)
				}

				return nil
			})
		})
	}

	t.Run("a target that was deleted comes back", func(t *testing.T) {
		if err := product.Client.Delete(t.Context(), was); err != nil {
			t.Fatal(err)
		}

		product.Holds(t, ns, "app", "password", "s3cret")
	})

	t.Run("a target that is renamed leaves none behind", func(t *testing.T) {
		product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("app", "store"), "  data:", "  target: {name: renamed}\n  data:"))
		product.Holds(t, ns, "renamed", "password", "s3cret")
		suite.Eventually(t, func(ctx context.Context) error {
			if _, err := product.Secret(ctx, ns, "app"); err == nil {
				return errors.New("the former target is still there")
			}

			return nil
		})
	})
}

// A Secret that an older operator created is taken over with its UID, and a key
// that it had written and that is absent from the store is removed.
func TestAdoptsWhatAnOlderOperatorMade(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore)

	old := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "app",
			Labels:      map[string]string{esv1.LabelManaged: "true"},
			Annotations: map[string]string{esv1.AnnotationDataHash: "stale"},
		},
		Data: map[string][]byte{"password": []byte("s3cret"), "gone": []byte("x")},
	}
	if err := product.Client.Create(t.Context(), old, client.FieldOwner(esv1.FieldManagerPrefix+"app")); err != nil {
		t.Fatal(err)
	}

	product.Apply(t, ns, suite.SimpleES("app", "store"))
	product.Synced(t, ns, "app")

	now, err := product.Secret(t.Context(), ns, "app")
	if err != nil {
		t.Fatal(err)
	}

	if now.UID != old.UID {
		t.Error("the Secret was made anew")
	}

	if diff := cmp.Diff(map[string][]byte{"password": []byte("s3cret")}, now.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}

	for _, entry := range now.ManagedFields {
		if entry.Manager == esv1.FieldManagerPrefix+"app" && entry.Operation == metav1.ManagedFieldsOperationUpdate && strings.Contains(entry.FieldsV1.GetRawString(), "f:data") {
			t.Errorf("the older operator's fields are still its own: %s", entry.FieldsV1.GetRawString())
		}
	}
}

// A Secret that belongs to another ExternalSecret stays as it is.
func TestLeavesAnothersTargetAlone(t *testing.T) {
	t.Parallel()

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore+suite.SimpleES("first", "store"))
	product.Synced(t, ns, "first")
	product.Apply(t, ns, strings.ReplaceAll(suite.SimpleES("second", "store"), "  data:", "  target: {name: first}\n  data:"))
	product.Failing(t, ns, "second", `Secret "first" is owned by ExternalSecret "first"`)

	secret, err := product.Secret(t.Context(), ns, "first")
	if err != nil {
		t.Fatal(err)
	}

	if owner := metav1.GetControllerOf(secret); owner == nil || owner.Name != "first" {
		t.Errorf("owner is %v", owner)
	}
}
