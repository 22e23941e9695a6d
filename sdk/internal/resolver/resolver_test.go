package resolver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

const (
	own   = "team-a"
	other = "team-b"
	// canary is part of every value: no error may quote it.
	canary = "canary-71d0"
)

// objects of two namespaces with the same names and different values.
func objects() []client.Object {
	var all []client.Object

	for _, namespace := range []string{own, other} {
		named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
		value := canary + " of " + namespace

		all = append(all,
			&corev1.Secret{ObjectMeta: named("creds"), Data: map[string][]byte{"token": []byte(value), "empty": {}}},
			&corev1.ConfigMap{
				ObjectMeta: named("ca"),
				Data:       map[string]string{"ca.crt": "text " + value, "both": "text " + value},
				BinaryData: map[string][]byte{"bundle": []byte("\xff" + value), "both": []byte("\xffboth")},
			},
		)
	}

	return append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "foreign"}, Data: map[string][]byte{"token": []byte(canary)}})
}

// guard is an API server that fails the test when anything outside of one
// namespace is asked for, and otherwise answers what answer says, if anything.
type guard struct {
	client.WithWatch

	namespace string
	answer    func() error
	reads     int
	account   string
	audiences []string
}

func newGuard(t *testing.T, namespace string, present ...client.Object) *guard {
	t.Helper()

	g := &guard{namespace: namespace}
	g.WithWatch = fake.NewClientBuilder().WithObjects(present...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
			g.reads++

			if namespace == "" || key.Namespace != namespace {
				t.Errorf("a read of %T %s, outside of namespace %q", into, key, namespace)
			}

			if g.answer != nil {
				return g.answer()
			}

			return c.Get(ctx, key, into, options...)
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			t.Error("a list: the resolver's rights need no such verb")

			return errors.New("denied")
		},
		SubResourceCreate: func(_ context.Context, _ client.Client, subResource string, parent, body client.Object, _ ...client.SubResourceCreateOption) error {
			if subResource != "token" || namespace == "" || parent.GetNamespace() != namespace {
				t.Errorf("a %s was asked for of %s in namespace %q", subResource, parent.GetName(), parent.GetNamespace())
			}

			if g.answer != nil {
				return g.answer()
			}

			request, ok := body.(*authenticationv1.TokenRequest)
			if !ok {
				t.Fatalf("the request is a %T", body)
			}

			if seconds := request.Spec.ExpirationSeconds; seconds == nil || *seconds != 600 {
				t.Errorf("the token is to live %v s", seconds)
			}

			g.account, g.audiences = parent.GetName(), request.Spec.Audiences
			request.Status.Token = canary

			return nil
		},
	}).Build()

	return g
}

func secretKey(name, key string) metav1alpha1.SecretKeySelector {
	return metav1alpha1.SecretKeySelector{Name: name, Key: key}
}

func fromConfigMap(name, key string) metav1alpha1.CASource {
	return metav1alpha1.CASource{ConfigMapRef: &metav1alpha1.ConfigMapKeySelector{Name: name, Key: key}}
}

func fromSecret(name, key string) metav1alpha1.CASource {
	ref := secretKey(name, key)

	return metav1alpha1.CASource{SecretRef: &ref}
}

func TestResolves(t *testing.T) {
	for _, test := range []struct {
		name, why string
		resolve   func(context.Context, *Resolver) ([]byte, error)
		want      string
	}{
		{
			name: "Secret", why: "of two Secrets with one name, that of the own namespace counts",
			resolve: func(ctx context.Context, r *Resolver) ([]byte, error) {
				return r.SecretKey(ctx, secretKey("creds", "token"))
			},
			want: canary + " of " + own,
		},
		{
			name: "empty value", why: "a key that is there and empty is there",
			resolve: func(ctx context.Context, r *Resolver) ([]byte, error) {
				return r.SecretKey(ctx, secretKey("creds", "empty"))
			},
		},
		{
			name: "bundle in a Secret", why: "a CA source may name a Secret",
			resolve: func(ctx context.Context, r *Resolver) ([]byte, error) {
				return r.CABundle(ctx, fromSecret("creds", "token"))
			},
			want: canary + " of " + own,
		},
		{
			name: "bundle in a ConfigMap", why: "or a ConfigMap's text",
			resolve: func(ctx context.Context, r *Resolver) ([]byte, error) {
				return r.CABundle(ctx, fromConfigMap("ca", "ca.crt"))
			},
			want: "text " + canary + " of " + own,
		},
		{
			name: "bundle in BinaryData", why: "kubectl create configmap --from-file puts there what is no UTF-8",
			resolve: func(ctx context.Context, r *Resolver) ([]byte, error) {
				return r.CABundle(ctx, fromConfigMap("ca", "bundle"))
			},
			want: "\xff" + canary + " of " + own,
		},
		{
			name: "key in both", why: "the API server refuses such a ConfigMap; should one exist, the bytes count",
			resolve: func(ctx context.Context, r *Resolver) ([]byte, error) {
				return r.CABundle(ctx, fromConfigMap("ca", "both"))
			},
			want: "\xffboth",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.resolve(t.Context(), New(newGuard(t, own, objects()...), own))
			if err != nil || string(got) != test.want {
				t.Errorf("%s: got %q, %v; want %q", test.why, got, err, test.want)
			}
		})
	}
}

// fault is an error as the operator sees it.
type fault struct {
	Code       codes.Code
	Reason     string
	StoreScope bool
	Message    string
}

func faultOf(err error) fault {
	if err == nil {
		return fault{}
	}

	typed := provider.AsError(err)

	return fault{typed.Code, typed.Reason, typed.StoreScope, typed.Message}
}

var (
	secrets  = schema.GroupResource{Resource: "secrets"}
	accounts = schema.GroupResource{Resource: "serviceaccounts"}
)

func TestRefuses(t *testing.T) {
	token := func(ctx context.Context, r *Resolver) ([]byte, error) {
		text, err := r.ServiceAccountToken(ctx, metav1alpha1.ServiceAccountSelector{Name: "app"}, "vault")

		return []byte(text), err
	}
	secret := func(name, key string) func(context.Context, *Resolver) ([]byte, error) {
		return func(ctx context.Context, r *Resolver) ([]byte, error) { return r.SecretKey(ctx, secretKey(name, key)) }
	}
	bundle := func(source metav1alpha1.CASource) func(context.Context, *Resolver) ([]byte, error) {
		return func(ctx context.Context, r *Resolver) ([]byte, error) { return r.CABundle(ctx, source) }
	}
	denied := func(text string) fault {
		return fault{codes.FailedPrecondition, pb.ReasonReferenceDenied, true, text}
	}
	missing := func(text string) fault {
		return fault{codes.FailedPrecondition, pb.ReasonReferenceNotFound, true, text}
	}
	invalid := func(text string) fault { return fault{codes.FailedPrecondition, pb.ReasonInvalidConfig, true, text} }
	key := secretKey("creds", "token")

	for _, test := range []struct {
		name, why string
		namespace string
		answer    func() error
		resolve   func(context.Context, *Resolver) ([]byte, error)
		want      fault
	}{
		{
			name: "Secret without a namespace", why: "denied is the default: \"\" must never mean all or default",
			resolve: secret("creds", "token"),
			want:    denied(`cannot resolve Secret "creds": the call has no authentication namespace`),
		},
		{
			name: "ConfigMap without a namespace", why: "likewise",
			resolve: bundle(fromConfigMap("ca", "ca.crt")),
			want:    denied(`cannot resolve ConfigMap "ca": the call has no authentication namespace`),
		},
		{
			name: "token without a namespace", why: "likewise",
			resolve: token,
			want:    denied(`cannot resolve ServiceAccount "app": the call has no authentication namespace`),
		},
		{
			name: "Secret of another namespace", why: "the error must not reveal that it exists in another namespace",
			namespace: own, resolve: secret("foreign", "token"),
			want: missing(`cannot read Secret "foreign" in namespace "team-a": it does not exist`),
		},
		{
			name: "no key", why: "a typo in a key is the most frequent mistake: the text names all three",
			namespace: own, resolve: secret("creds", "tokne"),
			want: missing(`Secret "creds" in namespace "team-a" has no key "tokne"`),
		},
		{
			name: "no ConfigMap", why: "the text names the kind that is missing",
			namespace: own, resolve: bundle(fromConfigMap("none", "ca.crt")),
			want: missing(`cannot read ConfigMap "none" in namespace "team-a": it does not exist`),
		},
		{
			name: "no key of a ConfigMap", why: "neither in data nor in binaryData",
			namespace: own, resolve: bundle(fromConfigMap("ca", "none")),
			want: missing(`ConfigMap "ca" in namespace "team-a" has no key "none"`),
		},
		{
			name: "no name", why: "the API server would answer a list to it",
			namespace: own, resolve: secret("", "token"),
			want: invalid(`a reference to a Secret has no name`),
		},
		{
			name: "no CA source", why: "a source without fields is an error, not an empty bundle",
			namespace: own, resolve: bundle(metav1alpha1.CASource{}),
			want: invalid(`set secretRef or configMapRef of the CA source`),
		},
		{
			name: "two CA sources", why: "it must not be left to chance which one is trusted",
			namespace: own, resolve: bundle(metav1alpha1.CASource{SecretRef: &key, ConfigMapRef: fromConfigMap("ca", "ca.crt").ConfigMapRef}),
			want: invalid(`set one of secretRef and configMapRef of the CA source, not both`),
		},
		{
			name: "forbidden", why: "the message must say that the provider lacks a permission",
			namespace: own, answer: func() error { return apierrors.NewForbidden(secrets, "creds", errors.New("RBAC")) },
			resolve: secret("creds", "token"),
			want:    denied(`cannot read Secret "creds" in namespace "team-a": the provider's ServiceAccount may not`),
		},
		{
			name: "token forbidden", why: "likewise",
			namespace: own, answer: func() error { return apierrors.NewForbidden(accounts, "app", errors.New("RBAC")) },
			resolve: token,
			want:    denied(`cannot request a token of ServiceAccount "app" in namespace "team-a": the provider's ServiceAccount may not`),
		},
		{
			name: "no ServiceAccount", why: "as for a Secret",
			namespace: own, answer: func() error { return apierrors.NewNotFound(accounts, "app") },
			resolve: token,
			want:    missing(`cannot request a token of ServiceAccount "app" in namespace "team-a": it does not exist`),
		},
		{
			name: "API server away", why: "no answer is no verdict on the config: it is tried again",
			namespace: own, answer: func() error { return apierrors.NewServiceUnavailable("starting") },
			resolve: secret("creds", "token"),
			want: fault{
				codes.Unavailable, pb.ReasonUnavailable, true,
				`cannot read Secret "creds" in namespace "team-a": the API server did not answer: starting`,
			},
		},
		{
			name: "audience refused", why: "what the API server says of an invalid request is the user's to read",
			namespace: own, answer: func() error { return apierrors.NewBadRequest("audience is empty") },
			resolve: token,
			want:    invalid(`cannot request a token of ServiceAccount "app" in namespace "team-a": audience is empty`),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuard(t, test.namespace, objects()...)
			g.answer = test.answer

			got, err := test.resolve(t.Context(), New(g, test.namespace))
			if diff := cmp.Diff(test.want, faultOf(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}

			if len(got) > 0 {
				t.Errorf("%s: got %q beside the error", test.why, got)
			}

			if err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("the error quotes a value: %v", err)
			}
		})
	}
}

func TestServiceAccountToken(t *testing.T) {
	for _, test := range []struct {
		name, why string
		audiences []string
		want      []string
	}{
		{name: "provider's choice", why: "the provider defines its backend's audience", want: []string{"vault"}},
		{name: "config's choice", why: "a backend may be set up for another one", audiences: []string{"a", "b"}, want: []string{"a", "b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuard(t, own)

			got, err := New(g, own).ServiceAccountToken(t.Context(), metav1alpha1.ServiceAccountSelector{Name: "app", Audiences: test.audiences}, "vault")
			if err != nil || got != canary || g.account != "app" {
				t.Errorf("%s: got %q of %q, %v", test.why, got, g.account, err)
			}

			if diff := cmp.Diff(test.want, g.audiences); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	secret := func(token string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "creds"}, Data: map[string][]byte{"token": []byte(token), "unread": []byte("x")}}
	}

	for _, test := range []struct {
		name, why string
		then      func(context.Context, *testing.T, *guard)
		want      bool
	}{
		{
			name: "nothing", why: "what reads the same is no reason for a new login",
			then: func(context.Context, *testing.T, *guard) {},
		},
		{
			name: "another value", why: "a rotated credential is to be used at once",
			then: func(ctx context.Context, t *testing.T, g *guard) {
				s := secret("new")
				if err := g.Update(ctx, s); err != nil {
					t.Fatal(err)
				}
			},
			want: true,
		},
		{
			name: "a key that was not read", why: "the rest of the Secret does not concern the store",
			then: func(ctx context.Context, t *testing.T, g *guard) {
				s := secret("old")
				s.Data["unread"] = []byte("y")
				s.Labels = map[string]string{"a": "b"}

				if err := g.Update(ctx, s); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "key removed", why: "a removed credential must not be used any more",
			then: func(ctx context.Context, t *testing.T, g *guard) {
				s := secret("old")
				delete(s.Data, "token")

				if err := g.Update(ctx, s); err != nil {
					t.Fatal(err)
				}
			},
			want: true,
		},
		{
			name: "Secret removed", why: "likewise",
			then: func(ctx context.Context, t *testing.T, g *guard) {
				if err := g.Delete(ctx, secret("")); err != nil {
					t.Fatal(err)
				}
			},
			want: true,
		},
		{
			name: "right withdrawn", why: "likewise",
			then: func(_ context.Context, _ *testing.T, g *guard) {
				g.answer = func() error { return apierrors.NewForbidden(secrets, "creds", errors.New("RBAC")) }
			},
			want: true,
		},
		{
			name: "API server away", why: "an outage must not end the logins that still work",
			then: func(_ context.Context, _ *testing.T, g *guard) {
				g.answer = func() error { return apierrors.NewServiceUnavailable("away") }
			},
		},
		{
			name: "API server slow", why: "likewise",
			then: func(_ context.Context, _ *testing.T, g *guard) {
				g.answer = func() error { return context.DeadlineExceeded }
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuard(t, own, secret("old"))
			r := New(g, own)

			if _, err := r.SecretKey(t.Context(), secretKey("creds", "token")); err != nil {
				t.Fatal(err)
			}

			test.then(t.Context(), t, g)

			if got := r.Changed(t.Context()); got != test.want {
				t.Errorf("%s: changed is %v", test.why, got)
			}
		})
	}
}

func TestChangedAsksNothingWhereNothingWasRead(t *testing.T) {
	g := newGuard(t, own, objects()...)
	r := New(g, own)

	// What could not be read was not used either.
	if _, err := r.SecretKey(t.Context(), secretKey("none", "token")); err == nil {
		t.Fatal("a Secret that is not there was read")
	}

	g.reads = 0

	if r.Changed(t.Context()) || g.reads != 0 {
		t.Errorf("changed, after %d reads", g.reads)
	}

	if r.Namespace() != own {
		t.Errorf("namespace is %q", r.Namespace())
	}
}
