package offline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

func parse(t *testing.T, text string) *esv1.ExternalSecret {
	t.Helper()

	es := &esv1.ExternalSecret{}
	if err := yaml.UnmarshalStrict([]byte(text), es); err != nil {
		t.Fatal(err)
	}

	return es
}

const simple = `
metadata: {name: app, namespace: ns}
spec:
  secretStoreRef: {apiVersion: secretstore.external-secrets.io/v2alpha1, name: store}
  data: [{secretKey: a, remoteRef: {key: k}}]
`

// one is a store that holds one key.
type one struct{}

func (one) Open(store Store, _ string) (Contents, error) {
	if store.Name != "store" {
		return nil, errors.New("there is no " + store.String())
	}

	return one{}, nil
}

func (one) Value(_ context.Context, read Read) ([]byte, error) {
	if read.Key != "k" {
		absent, err := status.New(codes.NotFound, "no "+read.Key).WithDetails(&errdetails.ErrorInfo{
			Domain: pb.ErrorDomain, Reason: pb.ReasonNotFound, Metadata: map[string]string{pb.MetadataScope: pb.ScopeItem},
		})

		if err != nil {
			return nil, err
		}

		return nil, absent.Err()
	}

	return []byte("v"), nil
}

func (one) Map(context.Context, Read) (map[string][]byte, error) {
	return map[string][]byte{"m": []byte("v")}, nil
}

func (one) Find(context.Context, Find) (map[string][]byte, error) {
	return map[string][]byte{"f": []byte("v")}, nil
}

func TestRender(t *testing.T) {
	t.Parallel()

	es := parse(t, simple)
	es.Spec.Target = &esv1.Target{Template: &esv1.Template{Data: map[string]string{"t": "<< .a >>"}}}

	target, err := Render(t.Context(), es, one{}, nil, Options{LeftDelimiter: "<<", RightDelimiter: ">>"})
	if err != nil || target.Action() != Written || string(target.Data["t"]) != "v" {
		t.Errorf("%+v, %v", target, err)
	}

	es.Spec.Data[0].RemoteRef.Key = "other"

	if _, err := Render(t.Context(), es, one{}, nil, Options{}); err == nil || !strings.Contains(err.Error(), `spec.data[0]: SecretStore "store": key "other": no other (NotFound)`) {
		t.Errorf("the error of an absent key differs from that of the operator: %v", err)
	}

	es.Spec.Target.DeletionPolicy = esv1.DeletionMerge

	if target, err := Render(t.Context(), es, one{}, nil, Options{LeftDelimiter: "<<", RightDelimiter: ">>"}); err == nil || target != nil {
		t.Errorf("a template of what is absent: %+v, %v", target, err)
	}

	es.Spec.Target.DeletionPolicy = esv1.DeletionDelete

	if target, err := Render(t.Context(), es, one{}, nil, Options{}); err != nil || target.Action() != Deleted || len(target.Absent) != 1 {
		t.Errorf("the deletion policy decides: %+v, %v", target, err)
	}

	es.Spec.SecretStoreRef.Name = "nowhere"

	if _, err := Render(t.Context(), es, one{}, nil, Options{}); err == nil || !strings.Contains(err.Error(), `there is no SecretStore "nowhere"`) {
		t.Errorf("a store that cannot be opened: %v", err)
	}

	es.Spec.Data, es.Spec.DataFrom = nil, nil
	_, err = Render(t.Context(), es, one{}, nil, Options{})

	if problems := Problems(err); len(problems) != 1 || Problems(errors.New("x")) != nil {
		t.Errorf("problems %q of %v", problems, err)
	}
}

func TestNextRefresh(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

	es := parse(t, simple)
	if due := NextRefresh(es, now); !due.Now || due.Why != "never synced" {
		t.Errorf("never synced: %+v", due)
	}

	es.Status.RefreshTime = metav1.NewTime(now.Add(-time.Minute))
	es.Spec.RefreshPolicy = esv1.RefreshOnChange
	es.Status.SyncedResourceVersion = "stale"

	if due := NextRefresh(es, now); !due.Now {
		t.Errorf("a changed object: %+v", due)
	}

	es.Spec.Target = &esv1.Target{Immutable: true}
	es.Status.Binding = &esv1.Binding{Name: "app"}

	if due := NextRefresh(es, now); due.Now || due.Next != 0 {
		t.Errorf("an immutable target stays: %+v", due)
	}
}

func TestExamine(t *testing.T) {
	t.Parallel()

	known := runtime.NewScheme()
	if err := v2alpha1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}

	store := func(name string, edit func(*v2alpha1.SecretStore)) *v2alpha1.SecretStore {
		s := &v2alpha1.SecretStore{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1}}
		s.Spec.ProviderConfig.ProviderRef.Kind = "Fake"
		s.Spec.ProviderConfig.ProviderRef.Name = "backend"
		edit(s)

		return s
	}

	for _, c := range []struct {
		why     string
		objects []client.Object
		version string
		reasons []string
		message string
	}{
		{"a name that is a letter off is proposed", []client.Object{store("stare", func(*v2alpha1.SecretStore) {})}, "", []string{ReasonMissing}, `did you mean SecretStore "stare"`},
		{"where none is alike, those that there are", []client.Object{store("quite-else", func(*v2alpha1.SecretStore) {})}, "", []string{ReasonMissing}, `there are SecretStore "quite-else"`},
		{"where there is none", nil, "", []string{ReasonMissing}, "there is none of that kind"},
		{"a store of v1 is not this operator's", nil, "external-secrets.io/v1", []string{ReasonUnserved}, "spec.secretStoreRef.apiVersion"},
		{
			"a store of another class is all that there is to say",
			[]client.Object{store("store", func(s *v2alpha1.SecretStore) { s.Spec.Controller = "other" })},
			"", []string{v2alpha1.ReasonOtherController}, `this operator's class is "default"`,
		},
		{
			"a store that was never validated, of a kind that no provider serves",
			[]client.Object{store("store", func(*v2alpha1.SecretStore) {})},
			"", []string{v2alpha1.ReasonValidationUnknown, v2alpha1.ReasonProviderNotRegistered}, "no SecretProvider serves Fake",
		},
		{
			"a store that is not Ready is not read; its condition says why",
			[]client.Object{store("store", func(s *v2alpha1.SecretStore) {
				s.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Why", Message: "no SecretProvider serves Fake of provider.secretstore.external-secrets.io/v2alpha1: install its provider's chart, or see 'kubectl get secretproviders' for one that is not Ready", ObservedGeneration: 1}}
			})},
			"", []string{"Why"}, "is not Ready (Why)",
		},
		{
			"a provider that is down is the last link of the chain",
			[]client.Object{
				store("store", func(s *v2alpha1.SecretStore) {
					s.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Valid", ObservedGeneration: 1}}
					s.Status.Provider = &v2alpha1.ProviderInfo{Name: "fake"}
				}),
				&v2alpha1.SecretProvider{
					ObjectMeta: metav1.ObjectMeta{Name: "fake"},
					Status:     v2alpha1.SecretProviderStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Unreachable", Message: "no answer"}}},
				},
			},
			"", []string{"Unreachable"}, "no answer",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			es := parse(t, simple)
			if c.version != "" {
				es.Spec.SecretStoreRef.APIVersion = c.version
			}

			cluster := fake.NewClientBuilder().WithScheme(known).WithObjects(c.objects...).Build()
			states := Examine(t.Context(), cluster, es, "default")

			var reasons, messages []string
			for _, obstacle := range states[0].Obstacles {
				reasons, messages = append(reasons, obstacle.Reason), append(messages, obstacle.Message)
			}

			if strings.Join(reasons, " ") != strings.Join(c.reasons, " ") || !strings.Contains(strings.Join(messages, "\n"), c.message) {
				t.Errorf("%q\n%s", reasons, strings.Join(messages, "\n"))
			}
		})
	}
}
