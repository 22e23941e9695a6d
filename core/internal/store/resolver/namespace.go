package resolver

import (
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

// Admits reports whether conditions admit a namespace. No conditions admit all;
// a condition that holds nothing admits none. Regular expressions match whole
// names. An error names what cannot be evaluated, and nothing is admitted.
func Admits(conditions []v2alpha1.NamespaceCondition, namespace string, namespaceLabels map[string]string) (bool, error) {
	if len(conditions) == 0 {
		return true, nil
	}

	admitted := false

	for i, condition := range conditions {
		if condition.NamespaceSelector != nil {
			selector, err := metav1.LabelSelectorAsSelector(condition.NamespaceSelector)
			if err != nil {
				return false, fmt.Errorf("spec.conditions[%d].namespaceSelector: %w", i, err)
			}

			admitted = admitted || selector.Matches(labels.Set(namespaceLabels))
		}

		admitted = admitted || slices.Contains(condition.Namespaces, namespace)

		for j, expression := range condition.NamespaceRegexes {
			matches, err := matchesWhole(expression, namespace)
			if err != nil {
				return false, fmt.Errorf("spec.conditions[%d].namespaceRegexes[%d]: %w", i, j, err)
			}

			admitted = admitted || matches
		}
	}

	return admitted, nil
}

// matchesWhole reports whether an expression matches a whole name. It must be one
// by itself: the anchors' own parentheses must not complete it.
func matchesWhole(expression, name string) (bool, error) {
	if _, err := regexp.Compile(expression); err != nil {
		return false, err
	}

	anchored, err := regexp.Compile(`\A(?:` + expression + `)\z`)
	if err != nil {
		return false, err
	}

	return anchored.MatchString(name), nil
}
