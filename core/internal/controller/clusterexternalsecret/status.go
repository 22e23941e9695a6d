package clusterexternalsecret

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

const (
	// shownFailures bounds what the message lists; status.failedNamespaces has
	// them all.
	shownFailures = 3
	// longestReason bounds the text about one namespace: there may be
	// thousands in one object.
	longestReason = 300
)

// summarize writes the result of every namespace to the status, and when those
// that failed are tried again.
func summarize(ces *esv1.ClusterExternalSecret, name string, tasks []*task, pause time.Duration) {
	var (
		provisioned []string
		failed      []esv1.ClusterExternalSecretNamespaceFailure
	)

	for _, t := range tasks {
		switch {
		case t.failure != nil:
			failed = append(failed, esv1.ClusterExternalSecretNamespaceFailure{Namespace: t.namespace.Name, Reason: short(t.failure.Error())})
		case t.matches && !t.gone:
			provisioned = append(provisioned, t.namespace.Name)
		}
	}

	slices.Sort(provisioned)
	slices.SortFunc(failed, func(a, b esv1.ClusterExternalSecretNamespaceFailure) int {
		return strings.Compare(a.Namespace, b.Namespace)
	})

	ces.Status.ExternalSecretName = name
	ces.Status.ProvisionedNamespaces = provisioned
	ces.Status.FailedNamespaces = failed

	all := len(provisioned) + len(failed)

	switch {
	case all == 0:
		setReady(ces, metav1.ConditionTrue, esv1.ReasonNamespacesProvisioned, "no namespace matches")
	case len(failed) == 0:
		setReady(ces, metav1.ConditionTrue, esv1.ReasonNamespacesProvisioned, fmt.Sprintf("provisioned in %d of %d namespaces", all, all))
	default:
		setReady(ces, metav1.ConditionFalse, esv1.ReasonNamespacesFailed,
			fmt.Sprintf("failed in %d of %d namespaces: %s", len(failed), all, first(failed, pause)))
	}
}

// first describes some failures, and when the next try is.
func first(failed []esv1.ClusterExternalSecretNamespaceFailure, pause time.Duration) string {
	var texts []string

	for _, failure := range failed[:min(len(failed), shownFailures)] {
		texts = append(texts, failure.Namespace+": "+failure.Reason)
	}

	if more := len(failed) - shownFailures; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}

	if pause > 0 {
		texts = append(texts, "next try in "+pause.Round(time.Second/10).String())
	}

	return strings.Join(texts, "; ")
}

func short(text string) string {
	if len(text) <= longestReason {
		return text
	}

	return strings.ToValidUTF8(text[:longestReason], "") + "..."
}

// unreadable reports that the spec does not define which namespaces are selected. What
// is there stays.
func unreadable(ces *esv1.ClusterExternalSecret, err error) {
	setReady(ces, metav1.ConditionFalse, esv1.ReasonInvalidSelector, err.Error()+"; no namespace is touched until that is fixed")
}

func setReady(ces *esv1.ClusterExternalSecret, status metav1.ConditionStatus, reason, message string) {
	if notes := deprecations(&ces.Spec); notes != "" {
		message += "; " + notes
	}

	condition := esv1.Condition{
		Type: esv1.ConditionReady, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.Now(), ObservedGeneration: ces.Generation,
	}

	for i := range ces.Status.Conditions {
		was := &ces.Status.Conditions[i]
		if was.Type != esv1.ConditionReady {
			continue
		}

		if was.Status == status && !was.LastTransitionTime.IsZero() {
			condition.LastTransitionTime = was.LastTransitionTime
		}

		*was = condition

		return
	}

	ces.Status.Conditions = append(ces.Status.Conditions, condition)
}
