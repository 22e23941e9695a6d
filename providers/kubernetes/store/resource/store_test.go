package resource

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRulesAreChecked(t *testing.T) {
	for _, test := range []struct {
		name, why string
		allow     []v2alpha1.ResourceRule
		want      string
	}{
		{"none", "a list that allows nothing is a mistake", nil, "spec.allow"},
		{"Secrets", "they have a kind of their own", []v2alpha1.ResourceRule{{APIVersion: "v1", Resource: "secrets"}}, "Secrets are read through a Kubernetes config"},
		{"subresource", "a token is one", []v2alpha1.ResourceRule{{APIVersion: "v1", Resource: "serviceaccounts/token"}}, "spec.allow[0].resource"},
		{"twice", "keys would be ambiguous", []v2alpha1.ResourceRule{{APIVersion: "a/v1", Resource: "x"}, {APIVersion: "b/v1", Resource: "x"}}, "spec.allow[1].resource"},
		{"expression", "the field is named", []v2alpha1.ResourceRule{{APIVersion: "v1", Resource: "configmaps", Names: []string{"("}}}, "spec.allow[0].names"},
		{"expression that closes the anchors", "it would match more than it says", []v2alpha1.ResourceRule{{APIVersion: "v1", Resource: "configmaps", Names: []string{"x)|(.*"}}}, "spec.allow[0].names"},
		{"version", "", []v2alpha1.ResourceRule{{APIVersion: "a/b/c", Resource: "x"}}, "spec.allow[0]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := rulesOf(test.allow)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.why, err, test.want)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	one, err := rulesOf([]v2alpha1.ResourceRule{{APIVersion: "v1", Resource: "configmaps", Names: []string{"app", "db-.*"}}})
	if err != nil {
		t.Fatal(err)
	}

	two, err := rulesOf([]v2alpha1.ResourceRule{{APIVersion: "v1", Resource: "configmaps"}, {APIVersion: "example.com/v1", Resource: "databases"}})
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name, why, key string
		rules          []rule
		want           string
		code           codes.Code
	}{
		{name: "by name", why: "the only resource is meant", key: "app", rules: one, want: "configmaps app"},
		{name: "qualified", why: "it may be named, too", key: "configmaps/db-1", rules: one, want: "configmaps db-1"},
		{name: "of two", why: "", key: "databases/a", rules: two, want: "databases a"},
		{name: "of two, by name", why: "the resource would be ambiguous", key: "a", rules: two, code: codes.InvalidArgument},
		{name: "not listed", why: "expressions are anchored", key: "my-app", rules: one, code: codes.PermissionDenied},
		{name: "another resource", why: "", key: "pods/a", rules: two, code: codes.PermissionDenied},
		{name: "a path", why: "it would be another object", key: "configmaps/../secrets/a", rules: two, code: codes.InvalidArgument},
		{name: "dots", why: "likewise", key: "configmaps/..", rules: two, code: codes.InvalidArgument},
		{name: "escaped", why: "likewise", key: "configmaps/a%2fb", rules: two, code: codes.InvalidArgument},
		{name: "nothing", why: "", key: "configmaps/", rules: two, code: codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, name, err := (&Store{rules: test.rules}).locate(test.key)

			if test.code != codes.OK {
				if err == nil || provider.AsError(err).Code != test.code {
					t.Errorf("%s: %v, want %v", test.why, err, test.code)
				}

				return
			}

			if got := r.resource.Resource + " " + name; err != nil || got != test.want {
				t.Errorf("%s: %s, %v", test.why, got, err)
			}
		})
	}
}

func TestOnlyWhatIsAllowedIsTold(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Database",
		"metadata": map[string]any{"name": "a", "uid": "u", "managedFields": []any{"x"}, "annotations": map[string]any{"secret": "s"}},
		"spec":     map[string]any{"host": "h", "password": "p", "nested": map[string]any{"a": "1", "b": "2"}},
		"status":   map[string]any{"phase": "Ready"},
	}}

	for _, test := range []struct {
		name, why string
		fields    []string
		want      string
	}{
		{"all", "except for managedFields", nil, `{"apiVersion":"example.com/v1","kind":"Database","metadata":{"name":"a","uid":"u","annotations":{"secret":"s"}},"spec":{"host":"h","password":"p","nested":{"a":"1","b":"2"}},"status":{"phase":"Ready"}}`},
		{"some", "", []string{"spec.host", "status"}, `{"spec":{"host":"h"},"status":{"phase":"Ready"}}`},
		{"shared beginning", "", []string{"spec.nested.a", "spec.host"}, `{"spec":{"host":"h","nested":{"a":"1"}}}`},
		{"one inside the other", "the wider counts", []string{"spec.nested", "spec.nested.a"}, `{"spec":{"nested":{"a":"1","b":"2"}}}`},
		{"what is not there", "it is left out", []string{"spec.none", "status.phase.deeper"}, `{}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			rules, err := rulesOf([]v2alpha1.ResourceRule{{APIVersion: "example.com/v1", Resource: "databases", Fields: test.fields}})
			if err != nil {
				t.Fatal(err)
			}

			got, err := rules[0].document(object.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}

			var gotValue, wantValue any

			_ = json.Unmarshal(got.Raw, &gotValue)
			_ = json.Unmarshal([]byte(test.want), &wantValue)

			if diff := cmp.Diff(wantValue, gotValue); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}

	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a"}}}
	if _, err := (rule{}).document(secret); err == nil {
		t.Error("a Secret under another resource's name is returned")
	}
}
