package clusterexternalsecret

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

func namespace(name string, labels map[string]string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	object.APIVersion, object.Kind = "v1", "Namespace"

	return object
}

func team(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"team": name}}
}

func TestSelection(t *testing.T) {
	going := namespace("a", map[string]string{"team": "a"})
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}

	for _, c := range []struct {
		why       string
		spec      esv1.ClusterExternalSecretSpec
		namespace *metav1.PartialObjectMetadata
		want      bool
	}{
		{"nothing selects nothing", esv1.ClusterExternalSecretSpec{}, namespace("a", nil), false},
		{"an empty selector selects all", esv1.ClusterExternalSecretSpec{NamespaceSelectors: []*metav1.LabelSelector{{}}}, namespace("a", nil), true},
		{"an absent entry is none", esv1.ClusterExternalSecretSpec{NamespaceSelectors: []*metav1.LabelSelector{nil}}, namespace("a", nil), false},
		{"any selector counts", esv1.ClusterExternalSecretSpec{NamespaceSelectors: []*metav1.LabelSelector{team("b"), team("a")}}, namespace("a", map[string]string{"team": "a"}), true},
		{"none matches", esv1.ClusterExternalSecretSpec{NamespaceSelectors: []*metav1.LabelSelector{team("b")}}, namespace("a", map[string]string{"team": "a"}), false},
		{"the deprecated selector counts beside the others", esv1.ClusterExternalSecretSpec{NamespaceSelectors: []*metav1.LabelSelector{team("b")}, NamespaceSelector: team("a")}, namespace("a", map[string]string{"team": "a"}), true},
		{"so do names", esv1.ClusterExternalSecretSpec{NamespaceSelectors: []*metav1.LabelSelector{team("b")}, Namespaces: []string{"a"}}, namespace("a", nil), true},
		{"a namespace in deletion takes nothing new", esv1.ClusterExternalSecretSpec{Namespaces: []string{"a"}, NamespaceSelectors: []*metav1.LabelSelector{{}}}, going, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			selected, err := newSelection(&c.spec)
			if err != nil {
				t.Fatal(err)
			}

			if got := selected.matches(c.namespace); got != c.want {
				t.Errorf("matches: %t", got)
			}
		})
	}
}

func TestSelectorThatNobodyCanRead(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}

	for _, spec := range []esv1.ClusterExternalSecretSpec{{NamespaceSelector: bad}, {NamespaceSelectors: []*metav1.LabelSelector{{}, bad}}} {
		if _, err := newSelection(&spec); err == nil {
			t.Errorf("no error for %+v", spec)
		}
	}
}
