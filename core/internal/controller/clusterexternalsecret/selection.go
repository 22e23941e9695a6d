package clusterexternalsecret

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// selection says which namespaces a ClusterExternalSecret matches.
type selection struct {
	selectors []labels.Selector
	names     []string
}

// newSelection reads a spec. An invalid selector is an error: to
// take it for one that matches nothing would delete ExternalSecrets.
func newSelection(spec *esv1.ClusterExternalSecretSpec) (*selection, error) {
	s := &selection{names: spec.Namespaces}

	for i, selector := range spec.NamespaceSelectors {
		if err := s.add(selector); err != nil {
			return nil, fmt.Errorf("cannot read spec.namespaceSelectors[%d]: %w", i, err)
		}
	}

	if err := s.add(spec.NamespaceSelector); err != nil {
		return nil, fmt.Errorf("cannot read spec.namespaceSelector: %w", err)
	}

	return s, nil
}

func (s *selection) add(selector *metav1.LabelSelector) error {
	if selector == nil {
		return nil
	}

	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return err
	}

	s.selectors = append(s.selectors, parsed)

	return nil
}

// matches reports whether a namespace is selected. One that is being deleted takes
// nothing new, and what it has goes with it.
func (s *selection) matches(namespace client.Object) bool {
	return namespace.GetDeletionTimestamp() == nil && (slices.Contains(s.names, namespace.GetName()) ||
		slices.ContainsFunc(s.selectors, func(selector labels.Selector) bool {
			return selector.Matches(labels.Set(namespace.GetLabels()))
		}))
}

// deprecations names what a spec should no longer say, and what instead.
func deprecations(spec *esv1.ClusterExternalSecretSpec) string {
	var notes []string

	if spec.NamespaceSelector != nil {
		notes = append(notes, "spec.namespaceSelector is deprecated: write it as an entry of spec.namespaceSelectors")
	}

	if len(spec.Namespaces) > 0 {
		notes = append(notes, "spec.namespaces is deprecated: write an entry of spec.namespaceSelectors with the label "+corev1.LabelMetadataName)
	}

	return strings.Join(notes, "; ")
}
