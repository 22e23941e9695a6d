package plan

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/compat"
)

func TestDecide(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	// synced makes an ExternalSecret that was synced a while ago.
	synced := func(ago time.Duration, edit func(*esv1.ExternalSecret)) *esv1.ExternalSecret {
		es := externalSecret(nil)
		es.Spec.RefreshInterval = &metav1.Duration{Duration: time.Hour}
		es.Status.RefreshTime = metav1.NewTime(now.Add(-ago))
		es.Status.SyncedResourceVersion = compat.SyncedVersion(&es.ObjectMeta)
		es.Status.SyncedDependencies = "deps"

		if edit != nil {
			edit(es)
		}

		return es
	}

	for _, c := range []struct {
		why    string
		es     *esv1.ExternalSecret
		deps   string
		broken bool
		frozen bool
		// asked means that a sync was requested explicitly.
		asked bool
		want  bool
		never bool
	}{
		{why: "what was never synced is due", es: externalSecret(nil), want: true},
		{why: "a refresh is not due before its time", es: synced(30*time.Minute, nil)},
		{why: "a refresh is due when the interval is over", es: synced(time.Hour+2*time.Second, nil), want: true},
		{why: "an absent interval is an hour", es: synced(2*time.Hour, func(es *esv1.ExternalSecret) { es.Spec.RefreshInterval = nil }), want: true},
		{why: "a target that was touched is repaired", es: synced(time.Minute, nil), broken: true, want: true},
		{why: "a new generation", es: synced(time.Minute, func(es *esv1.ExternalSecret) { es.Generation++ }), want: true, asked: true},
		{why: "an annotation forces a sync", es: synced(time.Minute, func(es *esv1.ExternalSecret) { es.Annotations = map[string]string{"a": "b"} }), want: true, asked: true},
		{why: "a label, too", es: synced(time.Minute, func(es *esv1.ExternalSecret) { es.Labels = map[string]string{"a": "b"} }), want: true, asked: true},
		{why: "a store that changed", es: synced(time.Minute, nil), deps: "others", want: true},
		{why: "a clock that jumped back an hour", es: synced(-time.Hour, nil), want: true},
		{why: "a second that the API rounds off is no jump", es: synced(-time.Second, nil)},
		{why: "an interval of 0 reads once", es: synced(24*time.Hour, func(es *esv1.ExternalSecret) { es.Spec.RefreshInterval = &metav1.Duration{} }), never: true},
		{why: "CreatedOnce reads once, whatever changes", es: synced(24*time.Hour, func(es *esv1.ExternalSecret) { es.Spec.RefreshPolicy = esv1.RefreshCreatedOnce; es.Generation++ }), never: true},
		{why: "CreatedOnce repairs its target", es: synced(time.Minute, func(es *esv1.ExternalSecret) { es.Spec.RefreshPolicy = esv1.RefreshCreatedOnce }), broken: true, want: true},
		{why: "OnChange does not read for time's sake", es: synced(24*time.Hour, func(es *esv1.ExternalSecret) { es.Spec.RefreshPolicy = esv1.RefreshOnChange }), never: true},
		{why: "the annotation forces a sync under CreatedOnce", es: synced(time.Minute, func(es *esv1.ExternalSecret) {
			es.Spec.RefreshPolicy = esv1.RefreshCreatedOnce
			es.Annotations = map[string]string{esv1.AnnotationForceSync: "1"}
		}), want: true, asked: true},
		{why: "the annotation forces a sync under interval 0", es: synced(time.Minute, func(es *esv1.ExternalSecret) {
			es.Spec.RefreshInterval = &metav1.Duration{}
			es.Annotations = map[string]string{esv1.AnnotationForceSync: "1"}
		}), want: true, asked: true},
		{why: "an annotation that was obeyed forces nothing when another comes", es: synced(time.Minute, func(es *esv1.ExternalSecret) {
			es.Spec.RefreshPolicy = esv1.RefreshCreatedOnce
			es.Annotations = map[string]string{esv1.AnnotationForceSync: "1"}
			es.Status.SyncedForceSync = ForceSync(es)
			es.Annotations["note"] = "new"
		}), never: true},
		{why: "an immutable target is never refreshed", es: synced(24*time.Hour, func(es *esv1.ExternalSecret) { es.Generation++ }), frozen: true, never: true},
		{why: "outside its window a refresh sleeps until the window opens", es: synced(2*time.Hour, func(es *esv1.ExternalSecret) {
			es.Spec.SyncWindows = &esv1.SyncWindows{Kind: "allow", Windows: []esv1.SyncWindow{{Schedule: "0 5 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}
		})},
		{why: "a change does not wait for the window", es: synced(2*time.Hour, func(es *esv1.ExternalSecret) {
			es.Spec.SyncWindows = &esv1.SyncWindows{Kind: "allow", Windows: []esv1.SyncWindow{{Schedule: "0 5 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}
			es.Generation++
		}), want: true, asked: true},
		{why: "OnChange reads on a change", es: synced(time.Minute, func(es *esv1.ExternalSecret) { es.Spec.RefreshPolicy = esv1.RefreshOnChange; es.Generation++ }), want: true, asked: true},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()

			deps := c.deps
			if deps == "" {
				deps = "deps"
			}

			due := Decide(c.es, State{Dependencies: deps, Intact: !c.broken, Frozen: c.frozen, Now: now})
			if due.Now != c.want {
				t.Fatalf("due = %+v", due)
			}

			if due.Asked != c.asked {
				t.Errorf("due = %+v; want asked %v", due, c.asked)
			}

			// An object that is not requeued would never be refreshed.
			if again := due.Again() > 0; again == c.never {
				t.Errorf("due = %+v, again after %s", due, due.Again())
			}

			if wait := due.Next > 0 && !due.Now; wait != (!c.want && !c.never) {
				t.Errorf("due = %+v", due)
			}
		})
	}
}

// A target that another client changes repeatedly is still refreshed: it is
// repaired from the values that were fetched last only if no refresh is due.
func TestDecideReadsBeforeItRepairs(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	for _, c := range []struct {
		why    string
		ago    time.Duration
		edit   func(*esv1.ExternalSecret)
		deps   string
		repair bool
		next   bool
	}{
		{why: "nothing but the target changed", ago: time.Minute, repair: true, next: true},
		{why: "the interval is over", ago: 2 * time.Hour},
		{why: "the spec changed", ago: time.Minute, edit: func(es *esv1.ExternalSecret) { es.Generation++ }},
		{why: "a store changed", ago: time.Minute, deps: "others"},
		{why: "the annotation asks for it", ago: time.Minute, edit: func(es *esv1.ExternalSecret) {
			es.Spec.RefreshPolicy = esv1.RefreshCreatedOnce
			es.Annotations = map[string]string{esv1.AnnotationForceSync: "1"}
		}},
		{why: "a policy that reads once is repaired from memory", ago: 2 * time.Hour, repair: true, edit: func(es *esv1.ExternalSecret) {
			es.Spec.RefreshPolicy = esv1.RefreshCreatedOnce
		}},
		{why: "a window that holds the refresh back holds back no repair", ago: 2 * time.Hour, repair: true, next: true, edit: func(es *esv1.ExternalSecret) {
			es.Spec.SyncWindows = &esv1.SyncWindows{Kind: "allow", Windows: []esv1.SyncWindow{{Schedule: "0 5 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}
			es.Status.SyncedResourceVersion = compat.SyncedVersion(&es.ObjectMeta)
		}},
	} {
		es := externalSecret(nil)
		es.Spec.RefreshInterval = &metav1.Duration{Duration: time.Hour}
		es.Status.RefreshTime = metav1.NewTime(now.Add(-c.ago))
		es.Status.SyncedResourceVersion = compat.SyncedVersion(&es.ObjectMeta)
		es.Status.SyncedDependencies = "deps"

		if c.edit != nil {
			c.edit(es)
		}

		if c.deps == "" {
			c.deps = "deps"
		}

		due := Decide(es, State{Dependencies: c.deps, Now: now})
		if !due.Now || due.Repair != c.repair || (due.Next > 0) != c.next {
			t.Errorf("%s: due = %+v", c.why, due)
		}
	}
}

// An object that is due but outside of its sync windows is requeued.
func TestDecideReportsWindows(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	for _, c := range []struct {
		why      string
		ago      time.Duration
		schedule string
		want     bool
	}{
		{"the interval is over, and the window is not open", 2 * time.Hour, "0 5 * * *", true},
		{"the interval is over, and the window never opens", 2 * time.Hour, "0 0 30 2 *", true},
		{"the interval is not over", time.Minute, "0 5 * * *", false},
	} {
		es := externalSecret(nil)
		es.Spec.RefreshInterval = &metav1.Duration{Duration: time.Hour}
		es.Spec.SyncWindows = &esv1.SyncWindows{Kind: "allow", Windows: []esv1.SyncWindow{{Schedule: c.schedule, Duration: metav1.Duration{Duration: time.Hour}}}}
		es.Status.RefreshTime = metav1.NewTime(now.Add(-c.ago))
		es.Status.SyncedResourceVersion = compat.SyncedVersion(&es.ObjectMeta)

		if due := Decide(es, State{Intact: true, Now: now}); due.Now || due.Held != c.want {
			t.Errorf("%s: due = %+v", c.why, due)
		}
	}
}

// The API takes any duration: a nanosecond must not keep a worker busy.
func TestIntervalHasALowerBound(t *testing.T) {
	t.Parallel()

	for given, want := range map[time.Duration]time.Duration{
		time.Nanosecond: time.Second, time.Second: time.Second, time.Minute: time.Minute, 0: 0, -time.Second: -time.Second,
	} {
		es := externalSecret(nil)
		es.Spec.RefreshInterval = &metav1.Duration{Duration: given}

		if got := Interval(es); got != want {
			t.Errorf("an interval of %s counts as %s, not %s", given, got, want)
		}
	}
}

// Objects that were made together must not come back together.
func TestJitterSpreads(t *testing.T) {
	t.Parallel()

	const n = 1000

	var buckets [10]int

	for i := range n {
		uid := types.UID(fmt.Sprintf("0b3f6c1e-%04d", i))

		got := jitter(uid, 1000*time.Second)
		if got != jitter(uid, 1000*time.Second) {
			t.Fatal("the same object drifts")
		}

		if got < 0 || got > 100*time.Second {
			t.Fatalf("%s is more than a tenth of 1000s", got)
		}

		buckets[min(int(got/(10*time.Second)), 9)]++
	}

	for i, count := range buckets {
		if count < n/20 || count > n/5 {
			t.Errorf("bucket %d holds %d of %d: %v", i, count, n, buckets)
		}
	}
}
