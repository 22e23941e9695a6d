package report

import (
	"testing"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// After a failure that is resolved without a sync, Ready is as the last sync set
// it.
func TestStanding(t *testing.T) {
	t.Parallel()

	bound := &esv1.Binding{Name: "app"}

	for _, c := range []struct {
		why             string
		target          *esv1.Target
		binding         *esv1.Binding
		reason, message string
	}{
		{"a target that is there", nil, bound, esv1.ReasonSecretSynced, "secret synced"},
		{"one that was deleted", &esv1.Target{DeletionPolicy: esv1.DeletionDelete}, nil, esv1.ReasonSecretDeleted, "secret deleted: the stores have nothing for it"},
		{"one that was never made", nil, nil, esv1.ReasonSecretSynced, "the stores have nothing for the secret: it is not created"},
		{"none is wanted", &esv1.Target{CreationPolicy: esv1.CreationNone}, nil, esv1.ReasonSecretSynced, "secret synced"},
		{
			"an object of another kind", &esv1.Target{DeletionPolicy: esv1.DeletionDelete, Manifest: &esv1.ManifestReference{APIVersion: "v1", Kind: "ConfigMap"}}, nil,
			esv1.ReasonResourceDeleted, "resource deleted: the stores have nothing for it",
		},
	} {
		es := &esv1.ExternalSecret{}
		es.Spec.Target, es.Status.Binding = c.target, c.binding

		if reason, message := lastResult(es); reason != c.reason || message != c.message {
			t.Errorf("%s: %s: %s", c.why, reason, message)
		}
	}
}
