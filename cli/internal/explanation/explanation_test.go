package explanation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/core/offline"
)

func TestInCluster(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 12, 30, 0, 0, time.UTC)
	ready := func(status metav1.ConditionStatus, reason string) []esv1.Condition {
		return []esv1.Condition{{Type: esv1.ConditionReady, Status: status, Reason: reason, Message: "the message", LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}}
	}

	for _, c := range []struct {
		why       string
		edit      func(*esv1.ExternalSecret)
		obstacles []offline.Obstacle
		want      []string
	}{
		{
			"one that no operator has reconciled", func(*esv1.ExternalSecret) {}, nil,
			[]string{"Ready           Unknown\n", "not looked at it yet", "Last refresh    never", "due now: never synced\n"},
		},
		{
			"one that is read once is not read again",
			func(es *esv1.ExternalSecret) {
				es.Spec.RefreshPolicy = esv1.RefreshCreatedOnce
				es.Status.RefreshTime = metav1.NewTime(now.Add(-time.Hour))
				es.Status.Conditions = ready(metav1.ConditionTrue, esv1.ReasonSecretSynced)
			}, nil,
			[]string{"Ready           True (SecretSynced) since 2026-01-02T12:29:00Z, for 1m\n", "1h ago", "Next refresh    when something changes"},
		},
		{
			"one that waits for its target",
			func(es *esv1.ExternalSecret) {
				es.Status.Conditions = ready(metav1.ConditionTrue, esv1.ReasonSecretMissing)
			}, nil,
			[]string{"Next refresh    when the target exists"},
		},
		{
			"one that fails, with the chain of what is in the way",
			func(es *esv1.ExternalSecret) {
				es.Generation = 2
				es.Status.Conditions = ready(metav1.ConditionFalse, esv1.ReasonSecretSyncedError)
				es.Status.Conditions[0].ObservedGeneration = 1
			},
			[]offline.Obstacle{{Object: "S", Reason: "R", Message: "S is gone"}, {Object: "P", Reason: "Down", Message: "no answer"}},
			[]string{"for 1m; of an older generation", "the last try failed", "Why             1. S is gone\n                2. P: Down: no answer\n"},
		},
		{
			"one that is Ready still, with what will be in the way next time",
			func(es *esv1.ExternalSecret) {
				es.Status.Conditions = ready(metav1.ConditionTrue, esv1.ReasonSecretSynced)
			},
			[]offline.Obstacle{{Object: "P", Reason: "Down", Message: "no answer"}},
			[]string{"In the way      1. P: Down"},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			es := &esv1.ExternalSecret{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "ns"}}
			es.Spec.SecretStoreRef = &esv1.StoreRef{Name: "store"}
			es.Spec.Data = []esv1.Data{{SecretKey: "a", RemoteRef: esv1.RemoteRef{Key: "k"}}}
			c.edit(es)

			e := Of(es, now)
			e.InCluster(es, []offline.StoreState{{Store: offline.StoresOf(es)[0], Obstacles: c.obstacles}}, now)

			for _, want := range c.want {
				if text := e.Text(); !strings.Contains(text, want) {
					t.Errorf("it lacks %q:\n%s", want, text)
				}
			}
		})
	}
}

func TestShort(t *testing.T) {
	t.Parallel()

	for d, want := range map[time.Duration]string{
		0: "0s", time.Minute: "1m", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", time.Hour + time.Second: "1h0m1s",
	} {
		if got := short(d); got != want {
			t.Errorf("%s: %s, not %s", d, got, want)
		}
	}
}
