package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// abandonEnv makes the test binary start a control plane in the folder that the
// variable names, say so, and wait to be killed.
const abandonEnv = "CONTROLPLANE_TEST_ABANDON"

func TestMain(m *testing.M) {
	if dir := os.Getenv(abandonEnv); dir != "" {
		if _, err := Start(context.Background(), Options{Dir: dir}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("started")
		time.Sleep(time.Hour)
	}
	goleak.VerifyTestMain(m)
}

// startForTest starts a control plane that ends with the test, and checks that
// it leaves nothing behind.
func startForTest(t *testing.T, opts Options) *ControlPlane {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	opts.Progress = t.Output()
	begin := time.Now()
	plane, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Logf("started in %s", time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		begin := time.Now()
		if err := plane.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
		t.Logf("stopped in %s", time.Since(begin).Round(time.Millisecond))
		if left := processesUsing(t, assetsForTest(t), plane.dir); len(left) > 0 {
			t.Errorf("processes left after Stop: %q", left)
		}
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("temporary files left after Stop: %v %v", left, err)
		}
	})
	return plane
}

func clientsForTest(t *testing.T, plane *ControlPlane) kubernetes.Interface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, condition); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func TestControlPlane(t *testing.T) {
	plane := startForTest(t, Options{})
	clients := clientsForTest(t, plane)

	t.Run("what owns a Secret takes it along", func(t *testing.T) { testGarbageCollection(t, clients) })
	t.Run("a namespace deletes with its content", func(t *testing.T) { testNamespaceDeletion(t, clients) })
	t.Run("a ServiceAccount's kubeconfig is that of a pod", func(t *testing.T) { testServiceAccount(t, plane, clients) })
	t.Run("a missing ServiceAccount gets no kubeconfig", func(t *testing.T) {
		missing := types.NamespacedName{Namespace: "default", Name: "missing"}
		path, err := plane.KubeconfigFor(t.Context(), missing)
		if path != "" || !apierrors.IsNotFound(err) {
			t.Errorf("KubeconfigFor(%s) = %q, %v; want a not-found error", missing, path, err)
		}
	})
	t.Run("the administrator's kubeconfig works", func(t *testing.T) {
		config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := config.Host, plane.APIServerURL(); got != want {
			t.Errorf("kubeconfig's server is %q, want %q", got, want)
		}
		if diff := cmp.Diff(userInfo{Name: "admin", Groups: []string{"system:masters", "system:authenticated"}}, whoAmI(t, plane.Kubeconfig())); diff != "" {
			t.Errorf("user (-want +got):\n%s", diff)
		}
	})
	t.Run("the files are the owner's alone", func(t *testing.T) {
		for _, path := range []string{plane.dir, plane.Kubeconfig()} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %s", path, info.Mode())
			}
		}
	})
}

func testGarbageCollection(t *testing.T, clients kubernetes.Interface) {
	ctx := t.Context()
	owner, err := clients.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name:            "owned",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	}}
	if _, err := clients.CoreV1().Secrets("default").Create(ctx, owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clients.CoreV1().ConfigMaps("default").Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owned Secret to go", func(ctx context.Context) (bool, error) {
		_, err := clients.CoreV1().Secrets("default").Get(ctx, "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func testNamespaceDeletion(t *testing.T, clients kubernetes.Interface) {
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}
	if _, err := clients.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "content"}}
	if _, err := clients.CoreV1().Secrets("brief").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clients.CoreV1().Namespaces().Delete(ctx, "brief", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace to go", func(ctx context.Context) (bool, error) {
		_, err := clients.CoreV1().Namespaces().Get(ctx, "brief", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func testServiceAccount(t *testing.T, plane *ControlPlane, clients kubernetes.Interface) {
	ctx := t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: "default"}}
	if _, err := clients.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := plane.KubeconfigFor(ctx, types.NamespacedName{Namespace: "default", Name: "reader"})
	if err != nil {
		t.Fatalf("KubeconfigFor: %v", err)
	}
	want := userInfo{
		Name:   "system:serviceaccount:default:reader",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"},
	}
	if diff := cmp.Diff(want, whoAmI(t, path)); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}

	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// RBAC is on: an account without a role may read nothing.
	if _, err := reader.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets without a role: %v, want forbidden", err)
	}
}

type userInfo struct {
	Name   string
	Groups []string
}

func whoAmI(t *testing.T, kubeconfig string) userInfo {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("authenticating with %s: %v", filepath.Base(kubeconfig), err)
	}
	return userInfo{Name: review.Status.UserInfo.Username, Groups: review.Status.UserInfo.Groups}
}

func TestControlPlaneInItsCallersFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plane")
	opts := Options{
		Dir:                      dir,
		WithoutControllerManager: true,
		APIServerFlags:           []string{"--audit-log-path=" + filepath.Join(dir, "audit.log"), "--max-requests-inflight=500"},
	}
	for _, run := range []string{"new", "used before"} {
		t.Run(run, func(t *testing.T) {
			plane := startForTest(t, opts)
			secrets := clientsForTest(t, plane).CoreV1().Secrets("default")
			// It fails if the control plane before has left its data.
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "same"}}
			if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	// The flag was taken: without a policy the log is made and stays empty.
	for _, name := range []string{"audit.log", "admin.kubeconfig"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("the caller's folder lacks a file: %v", err)
		}
	}
}

func TestStartFailsCleanly(t *testing.T) {
	cases := []struct {
		name string
		why  string
		opts Options
		want string
	}{
		{
			name: "unknown flag",
			why:  "the program's own complaint is what helps, and etcd runs already when it comes",
			opts: Options{APIServerFlags: []string{"--no-such-flag=1"}},
			want: "unknown flag: --no-such-flag",
		},
		{
			name: "malformed flag",
			why:  "a flag without a value would silently swallow the next one",
			opts: Options{APIServerFlags: []string{"--v"}},
			want: `cannot use the API server flag "--v"`,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			assets := assetsForTest(t)
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			plane, err := Start(t.Context(), c.opts)
			if plane != nil || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Start = %v, %v; want an error with %q, because %s", plane, err, c.want, c.why)
			}
			if left := processesUsing(t, assets, temp); len(left) > 0 {
				t.Errorf("processes left: %q", left)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("temporary files left: %v %v", left, err)
			}
		})
	}
}

func assetsForTest(t *testing.T) string {
	t.Helper()
	assets, err := Assets(context.Background(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return assets
}
