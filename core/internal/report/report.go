package report

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/apply"
	"github.com/external-secrets/eso/core/internal/marker"
	text "github.com/external-secrets/eso/core/internal/message"
)

// Reasons of events.
const (
	eventCreated      = "Created"
	eventUpdated      = "Updated"
	eventDeleted      = "Deleted"
	eventUpdateFailed = "UpdateFailed"
)

// maxEventNote is the longest note of an event (Kubernetes: 1 kB).
const maxEventNote = 1000

// Reporter writes the status of ExternalSecrets.
type Reporter struct {
	client client.Client
	events events.EventRecorder
}

// New makes a reporter.
func New(c client.Client, recorder events.EventRecorder) *Reporter {
	return &Reporter{client: c, events: recorder}
}

// Synced tells of a sync that began at the given time and ended well. It
// updates es.
func (r *Reporter) Synced(ctx context.Context, es *esv1.ExternalSecret, began time.Time, dependencies string, target string, outcome apply.Outcome) error {
	before := es.DeepCopy()
	es.Status.RefreshTime = metav1.NewTime(began)
	es.Status.SyncedResourceVersion = marker.SyncedVersion(&es.ObjectMeta)
	es.Status.SyncedDependencies = dependencies
	es.Status.Binding = &esv1.Binding{Name: target}
	setReady(es, metav1.ConditionTrue, esv1.ReasonSecretSynced, "secret synced")

	switch outcome.Change {
	case apply.Created:
		r.event(es, corev1.EventTypeNormal, eventCreated, "created Secret "+target)
	case apply.Updated:
		r.event(es, corev1.EventTypeNormal, eventUpdated, "updated Secret "+target)
	case apply.Unchanged:
	}

	for _, name := range outcome.Removed {
		r.event(es, corev1.EventTypeNormal, eventDeleted, "deleted Secret "+name+", which is no longer the target")
	}

	return r.patch(ctx, before, es)
}

// Failed tells of a sync that failed, and when it is tried again: after a
// while, or, where that is 0, when an object changes. It updates es.
func (r *Reporter) Failed(ctx context.Context, es *esv1.ExternalSecret, failure error, again time.Duration) error {
	before := es.DeepCopy()

	next := "; tried again when an object that this depends on changes"
	if again > 0 {
		next = "; next try in " + again.Round(time.Second/10).String()
	}

	was := ready(before)
	message := failure.Error() + next
	setReady(es, metav1.ConditionFalse, esv1.ReasonSecretSyncedError, message)

	if was == nil || was.Status != metav1.ConditionFalse || text.Stable(was.Message) != text.Stable(message) {
		r.event(es, corev1.EventTypeWarning, eventUpdateFailed, failure.Error())
	}

	return r.patch(ctx, before, es)
}

func (r *Reporter) event(es *esv1.ExternalSecret, kind, reason, note string) {
	if len(note) > maxEventNote {
		note = strings.ToValidUTF8(note[:maxEventNote], "") + "..."
	}

	r.events.Eventf(es, nil, kind, reason, "Sync", "%s", note)
}

func (r *Reporter) patch(ctx context.Context, before, after *esv1.ExternalSecret) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}

	err := r.client.Status().Patch(ctx, after, client.MergeFrom(before))
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("cannot write the status of ExternalSecret %q: %w", after.Name, err)
	}

	return nil
}

func ready(es *esv1.ExternalSecret) *esv1.Condition {
	for i := range es.Status.Conditions {
		if es.Status.Conditions[i].Type == esv1.ConditionReady {
			return &es.Status.Conditions[i]
		}
	}

	return nil
}

func setReady(es *esv1.ExternalSecret, status metav1.ConditionStatus, reason, message string) {
	condition := esv1.Condition{
		Type: esv1.ConditionReady, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.Now(), ObservedGeneration: es.Generation,
	}

	was := ready(es)
	if was == nil {
		es.Status.Conditions = append(es.Status.Conditions, condition)

		return
	}

	if was.Status == status {
		condition.LastTransitionTime = was.LastTransitionTime
	}

	*was = condition
}
