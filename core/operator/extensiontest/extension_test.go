package extensiontest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/operator"
	"github.com/external-secrets/eso/testkit/controlplane"
)

// An ExternalSecret reads a kind of store and a kind of generator that only the
// extension knows, and follows changes of the store.
func TestExtension(t *testing.T) {
	ctrl.SetLogger(logr.Discard())

	cluster := start(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	secretStore := &SecretStore{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "top"}, Values: map[string]string{"password": "first"}}
	es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "app"}}
	es.Spec.SecretStoreRef = &esv1.StoreRef{APIVersion: storeVersion.String(), Kind: "SecretStore", Name: "top"}
	es.Spec.Data = []esv1.Data{{SecretKey: "password", RemoteRef: esv1.RemoteRef{Key: "password"}}}
	es.Spec.DataFrom = []esv1.DataFrom{{SourceRef: &esv1.SourceRef{
		GeneratorRef: &esv1.GeneratorRef{APIVersion: "stamps.example.com/v1", Kind: "Stamp", Name: "blue"},
	}}}

	// Its apiVersion has no resolver.
	unserved := es.DeepCopy()
	unserved.Name = "unserved"
	unserved.Spec.DataFrom[0].SourceRef.GeneratorRef.APIVersion = "other.example.com/v1"

	for _, object := range []client.Object{namespace, secretStore, es, unserved} {
		if err := cluster.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	awaitData(t, cluster, map[string]string{"password": "first", "stamp": "Stamp/tenant/blue"})

	secretStore.Values["password"] = "second"
	if err := cluster.Update(t.Context(), secretStore); err != nil {
		t.Fatal(err)
	}

	awaitData(t, cluster, map[string]string{"password": "second", "stamp": "Stamp/tenant/blue"})

	await(t, func(ctx context.Context) string {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(unserved), unserved); err != nil {
			return err.Error()
		}

		for _, condition := range unserved.Status.Conditions {
			if strings.Contains(condition.Message, "not supported yet: spec.dataFrom[0].sourceRef.generatorRef") {
				return ""
			}
		}

		return "a generator that is not served is not refused"
	})
}

// start runs the operator with the extension on a control plane of its own.
func start(t *testing.T) client.Client {
	t.Helper()

	plane, err := controlplane.Start(t.Context(), controlplane.Options{WithoutControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := plane.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})

	if _, err := envtest.InstallCRDs(plane.Config(), envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("..", "..", "..", "api", "crds")},
		CRDs:  []*apiextensionsv1.CustomResourceDefinition{storeDefinition()},
	}); err != nil {
		t.Fatal(err)
	}

	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, esv1.AddToScheme, addStores} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}

	cluster, err := client.New(plane.Config(), client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}

	if err := cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "external-secrets"}}); err != nil {
		t.Fatal(err)
	}

	run(t, plane.Config())

	return cluster
}

// run runs the operator until the test ends.
func run(t *testing.T, config *rest.Config) {
	t.Helper()

	ctx, stop := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)

	go func() {
		ended <- operator.Run(ctx, config, operator.Options{
			MetricsAddress: "0", LiveAddress: "0", Class: "default", Concurrent: 4, QPS: -1, MaxFound: 100, MemoryBytes: 1 << 20,
			StoreRefreshInterval: time.Minute, Namespace: "external-secrets", CALifetime: 24 * time.Hour, CertificateLifetime: time.Hour,
		}, extension(started))
	}()

	t.Cleanup(func() {
		stop()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	select {
	case <-started:
	case err := <-ended:
		ended <- err

		t.Fatal("the operator has ended")
	case <-time.After(patience):
		t.Fatal("the extension's controller does not run")
	}
}

func awaitData(t *testing.T, cluster client.Client, want map[string]string) {
	t.Helper()
	await(t, func(ctx context.Context) string {
		secret := &corev1.Secret{}
		if err := cluster.Get(ctx, client.ObjectKey{Namespace: "tenant", Name: "app"}, secret); err != nil {
			return err.Error()
		}

		got := map[string]string{}
		for key, value := range secret.Data {
			got[key] = string(value)
		}

		return cmp.Diff(want, got)
	})
}

// await waits until problem finds none.
func await(t *testing.T, problem func(context.Context) string) {
	t.Helper()

	last := ""

	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = problem(ctx)

		return last == "", nil
	}); err != nil {
		t.Fatalf("%v: %s", err, last)
	}
}
