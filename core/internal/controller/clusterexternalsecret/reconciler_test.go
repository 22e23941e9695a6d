package clusterexternalsecret

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/expectation"
)

// cluster is a reconciler on a cluster in memory. What the real one adds is
// tested end to end.
func cluster(t *testing.T, between interceptor.Funcs, objects ...client.Object) *Reconciler {
	t.Helper()

	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, esv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}

	c := fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).WithStatusSubresource(&esv1.ClusterExternalSecret{}).
		WithReturnManagedFields().
		WithIndex(&esv1.ExternalSecret{}, indexOwner, byOwner).
		WithIndex(&esv1.ClusterExternalSecret{}, indexChild, byChild).
		WithIndex(&corev1.Namespace{}, indexFinalizer, byFinalizer).
		WithInterceptorFuncs(between).Build()

	return New(c, c)
}

func everywhere() *esv1.ClusterExternalSecret {
	return &esv1.ClusterExternalSecret{
		ObjectMeta: metav1.ObjectMeta{Name: "app", UID: "ces"},
		Spec:       esv1.ClusterExternalSecretSpec{NamespaceSelectors: []*metav1.LabelSelector{{}}},
	}
}

func look(t *testing.T, r *Reconciler) *esv1.ClusterExternalSecret {
	t.Helper()

	ces := &esv1.ClusterExternalSecret{}
	if err := r.client.Get(t.Context(), client.ObjectKey{Name: "app"}, ces); err != nil {
		t.Fatal(err)
	}

	return ces
}

// A namespace whose write fails does not block the others, is reported, and is
// tried again after its backoff and not before.
func TestOneNamespaceFails(t *testing.T) {
	var tries atomic.Int32

	r := cluster(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if object.GetNamespace() == "b" && tries.Add(1) < 3 {
				return errors.New("the quota is used up")
			}

			return c.Create(ctx, object, options...)
		},
	}, everywhere(), namespace("a", nil), namespace("b", nil), namespace("c", nil))

	now := time.Now()
	r.now = func() time.Time { return now }

	for step, want := range []struct {
		after       time.Duration
		provisioned []string
		tries       int32
		again       bool
	}{
		{0, []string{"a", "c"}, 1, true},
		{0, []string{"a", "c"}, 1, true},
		{2 * time.Second, []string{"a", "c"}, 2, true},
		{time.Minute, []string{"a", "b", "c"}, 3, false},
	} {
		now = now.Add(want.after)

		result, err := r.Reconcile(t.Context(), requestFor("app"))
		if err != nil {
			t.Fatal(err)
		}

		ces := look(t, r)
		if diff := cmp.Diff(want.provisioned, ces.Status.ProvisionedNamespaces); diff != "" {
			t.Errorf("step %d: provisioned (-want +got):\n%s", step, diff)
		}

		if tries.Load() != want.tries || (result.RequeueAfter > 0) != want.again {
			t.Errorf("step %d: %d tries, the next in %s", step, tries.Load(), result.RequeueAfter)
		}

		if text := ces.Status.Conditions[0].Message; want.again != strings.Contains(text, "failed in 1 of 3 namespaces: b: ") || want.again != strings.Contains(text, "next try in ") {
			t.Errorf("step %d: %s", step, text)
		}
	}
}

// An ExternalSecret that another client creates after the cache was read is not
// taken over, nor is one that has replaced the one in the cache.
func TestConcurrentCreateIsNotTakenOver(t *testing.T) {
	theirs := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "app", UID: "theirs", Labels: map[string]string{"is": "theirs"}}}
	r := cluster(t, interceptor.Funcs{
		// As the API server does; end to end tests see that it does.
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if applied, ok := object.(interface{ GetUID() types.UID }); ok && applied.GetUID() == "ours" {
				return apierrors.NewInvalid(schema.GroupKind{Group: esv1.Group, Kind: esv1.ExternalSecretKind}, "app", field.ErrorList{
					field.Invalid(field.NewPath("metadata", "uid"), "ours", "field is immutable"),
				})
			}

			return c.Apply(ctx, object, options...)
		},
	}, theirs)

	want, err := newChild(everywhere())
	if err != nil {
		t.Fatal(err)
	}

	ours := want.object("a")
	ours.UID = "ours"

	for why, current := range map[string]*esv1.ExternalSecret{"the cache had none": nil, "the cache had ours": ours} {
		_, err := r.writer.write(t.Context(), want, "a", current)
		if _, blocked := errors.AsType[*blockedError](err); !blocked {
			t.Errorf("%s: %v", why, err)
		}

		now := &esv1.ExternalSecret{}
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), now); err != nil {
			t.Fatal(err)
		}

		if now.UID != "theirs" || len(now.OwnerReferences) > 0 || now.Labels["is"] != "theirs" {
			t.Errorf("%s: it was touched: %+v", why, now.ObjectMeta)
		}
	}
}

// Repairs of changes that another client makes repeatedly back off.
func TestRepairsBackOff(t *testing.T) {
	r := cluster(t, interceptor.Funcs{}, everywhere(), namespace("a", nil))

	now := time.Now()
	r.now = func() time.Time { return now }

	made := 0

	for range 5 {
		if _, err := r.Reconcile(t.Context(), requestFor("app")); err != nil {
			t.Fatal(err)
		}

		es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "app"}}
		if r.client.Delete(t.Context(), es) == nil {
			made++
		}

		now = now.Add(expectation.MaxLag + time.Millisecond)
	}

	// Pauses of 1, 2 and 4 s between looks that are 2 s apart.
	if made != 4 {
		t.Errorf("created %d times, not 4", made)
	}

	if text := look(t, r).Status.Conditions[0].Message; !strings.Contains(text, "again and again") {
		t.Errorf("message: %s", text)
	}
}

func TestInParallelIsBounded(t *testing.T) {
	var (
		running, most, done atomic.Int32
		tasks               []*task
	)

	for i := range 100 {
		tasks = append(tasks, &task{namespace: namespace(strconv.Itoa(i), nil), writes: i%2 == 0})
	}

	inParallel(tasks, func(*task) {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(time.Millisecond)
		running.Add(-1)
		done.Add(1)
	})

	if done.Load() != 50 || most.Load() > parallel {
		t.Errorf("%d done, %d at a time", done.Load(), most.Load())
	}
}

// At rest a thousand namespaces cost no write, whatever the process remembers:
// the second reconciler has just started.
func TestNothingIsWrittenAtRest(t *testing.T) {
	const n = 1000

	objects := []client.Object{everywhere()}
	for i := range n {
		objects = append(objects, namespace("ns-"+strconv.Itoa(i), nil))
	}

	var writes atomic.Int32

	r := cluster(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			writes.Add(1)

			return c.Create(ctx, object, options...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			writes.Add(1)

			return c.Apply(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			writes.Add(1)

			return c.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			writes.Add(1)

			return c.SubResource(name).Patch(ctx, object, patch, options...)
		},
	}, objects...)

	for _, want := range []int32{n + 1, 0} {
		writes.Store(0)

		result, err := New(r.client, r.client).Reconcile(t.Context(), requestFor("app"))
		if err != nil || result.RequeueAfter != 0 {
			t.Fatalf("again in %s, error %v", result.RequeueAfter, err)
		}

		if got := writes.Load(); got != want {
			t.Errorf("%d writes, not %d", got, want)
		}
	}

	if got := len(look(t, r).Status.ProvisionedNamespaces); got != n {
		t.Errorf("%d namespaces are provisioned", got)
	}
}
