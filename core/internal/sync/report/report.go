package report

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/compat"
	text "github.com/external-secrets/eso/core/internal/statustext"
	"github.com/external-secrets/eso/core/internal/sync/apply"
	"github.com/external-secrets/eso/core/internal/sync/plan"
)

// Reasons of events.
const (
	eventCreated      = "Created"
	eventUpdated      = "Updated"
	eventDeleted      = "Deleted"
	eventMissing      = "MissingProviderSecret"
	eventUpdateFailed = "UpdateFailed"
)

// Messages of the Ready condition where there is no target, and none is missed.
const (
	messageDeleted    = "%s deleted: the stores have nothing for it"
	messageNotCreated = "the stores have nothing for the %s: it is not created"
)

// Events of each type beyond these are left out. The condition of each object
// says the same: when thousands are made, or fail, at the same time, a write of
// an event for each would slow down the rest.
const (
	eventsPerSecond = 20
	eventBurst      = 100
)

// minReportedPause is the shortest pause before the next try that is written to
// the status where nothing else of a failure has changed.
const minReportedPause = 30 * time.Second

// shownAbsent bounds the entries that a message lists.
const shownAbsent = 5

// Reporter writes the status of ExternalSecrets.
type Reporter struct {
	client client.Client
	events events.EventRecorder
	limits map[string]*rate.Limiter
}

// New returns a reporter.
func New(c client.Client, recorder events.EventRecorder) *Reporter {
	return &Reporter{client: c, events: recorder, limits: map[string]*rate.Limiter{
		corev1.EventTypeNormal:  rate.NewLimiter(eventsPerSecond, eventBurst),
		corev1.EventTypeWarning: rate.NewLimiter(eventsPerSecond, eventBurst),
	}}
}

// reasons of the Ready condition, by the kind of the target.
type reasons struct{ synced, deleted, missing, failed, noun string }

func reasonsOf(target plan.Target) reasons {
	if target.IsSecret() {
		return reasons{
			synced: esv1.ReasonSecretSynced, deleted: esv1.ReasonSecretDeleted,
			missing: esv1.ReasonSecretMissing, failed: esv1.ReasonSecretSyncedError, noun: "secret",
		}
	}

	return reasons{
		synced: esv1.ReasonResourceSynced, deleted: esv1.ReasonResourceDeleted,
		missing: esv1.ReasonResourceMissing, failed: esv1.ReasonResourceSyncedError, noun: "resource",
	}
}

// Sync is a sync that succeeded.
type Sync struct {
	// Began is when the stores were asked; zero where they were not.
	Began time.Time
	// Dependencies is the digest of the stores and templates that were used.
	Dependencies string
	// Target that was written.
	Target plan.Target
	// Outcome of the write.
	Outcome apply.Outcome
	// Exists says that the target is there now.
	Exists bool
	// Deleted says that the stores had nothing and that there is no target for
	// that reason, whichever client deleted it.
	Deleted bool
	// Retained says that the stores had nothing and that the target was left as
	// it is for that reason.
	Retained bool
	// Absent says what the stores did not have, for people.
	Absent []string
}

// Synced reports a sync that succeeded. It updates es.
func (r *Reporter) Synced(ctx context.Context, es *esv1.ExternalSecret, sync Sync) error {
	before := es.DeepCopy()

	if !sync.Began.IsZero() {
		es.Status.RefreshTime = metav1.NewTime(sync.Began)
		es.Status.SyncedResourceVersion = compat.SyncedVersion(&es.ObjectMeta)
		es.Status.SyncedDependencies = sync.Dependencies
		es.Status.SyncedForceSync = plan.ForceSync(es)
	}

	es.Status.Binding = nil
	if sync.Exists {
		es.Status.Binding = &esv1.Binding{Name: sync.Target.Name}
	}

	reasons := reasonsOf(sync.Target)
	reason, message := reasons.synced, reasons.noun+" synced"

	switch {
	case sync.Deleted:
		reason, message = reasons.deleted, fmt.Sprintf(messageDeleted, reasons.noun)
	case sync.Retained && sync.Exists:
		message = "the stores have nothing for the " + reasons.noun + ": it is retained as it is"
	case sync.Retained:
		message = fmt.Sprintf(messageNotCreated, reasons.noun)
	}

	named := sync.Target.Noun() + " " + sync.Target.Name

	if len(sync.Absent) > 0 {
		absent := sync.Absent
		if more := len(absent) - shownAbsent; more > 0 {
			absent = append(absent[:shownAbsent:shownAbsent], fmt.Sprintf("and %d more", more))
		}

		message += "; not found, and left out: " + strings.Join(absent, ", ")

		if was := ready(before); was == nil || was.Message != message {
			r.event(es, corev1.EventTypeNormal, eventMissing, "not found, and left out: "+strings.Join(absent, ", "))
		}
	}

	setReady(es, metav1.ConditionTrue, reason, message)

	switch sync.Outcome.Change {
	case apply.Created:
		r.event(es, corev1.EventTypeNormal, eventCreated, "created "+named)
	case apply.Updated:
		r.event(es, corev1.EventTypeNormal, eventUpdated, "updated "+named)
	case apply.Deleted:
		r.event(es, corev1.EventTypeNormal, eventDeleted, "deleted "+named+": the stores have nothing for it")
	case apply.Unchanged:
	}

	for _, name := range sync.Outcome.Removed {
		r.event(es, corev1.EventTypeNormal, eventDeleted, "deleted "+sync.Target.Noun()+" "+name+", which is no longer the target")
	}

	return r.patch(ctx, before, es)
}

// Waiting reports that the target, which another client has to create, does not
// exist.
// It updates es.
func (r *Reporter) Waiting(ctx context.Context, es *esv1.ExternalSecret, target plan.Target) error {
	before := es.DeepCopy()
	es.Status.Binding = nil
	setReady(es, metav1.ConditionTrue, reasonsOf(target).missing,
		fmt.Sprintf("%s %q does not exist, and creationPolicy Merge does not make it; synced as soon as it does", target.Noun(), target.Name))

	return r.patch(ctx, before, es)
}

// Skipped reports that another operator serves a store of the ExternalSecret.
// A status that the other operator has written is not changed. It updates es.
func (r *Reporter) Skipped(ctx context.Context, es *esv1.ExternalSecret, store, class string) error {
	if was := ready(es); was != nil && (was.Reason != esv1.ReasonOtherController || was.ObservedGeneration == es.Generation) {
		return nil
	}

	before := es.DeepCopy()
	setReady(es, metav1.ConditionUnknown, esv1.ReasonOtherController,
		fmt.Sprintf("%s has spec.controller %q: the operator of that class syncs this ExternalSecret", store, class))

	return r.patch(ctx, before, es)
}

// Recovered reports that a failure is over although nothing was read: the object
// was fixed, and its policy requires no sync. It updates es.
func (r *Reporter) Recovered(ctx context.Context, es *esv1.ExternalSecret) error {
	was := ready(es)
	if was == nil || was.Status == metav1.ConditionTrue {
		return nil
	}

	before := es.DeepCopy()
	reason, message := lastResult(es)
	setReady(es, metav1.ConditionTrue, reason, message)

	return r.patch(ctx, before, es)
}

// lastResult is the result of the last sync, as far as the status has it.
func lastResult(es *esv1.ExternalSecret) (reason, message string) {
	target := plan.TargetOf(es)
	reasons := reasonsOf(target)

	switch {
	case es.Status.Binding != nil, target.Creation == esv1.CreationNone:
		return reasons.synced, reasons.noun + " synced"
	case target.Deletion == esv1.DeletionDelete:
		return reasons.deleted, fmt.Sprintf(messageDeleted, reasons.noun)
	default:
		return reasons.synced, fmt.Sprintf(messageNotCreated, reasons.noun)
	}
}

// Failed reports a sync that failed, and when it is tried again: after a
// while, or, where that is 0, when an object changes. It updates es.
func (r *Reporter) Failed(ctx context.Context, es *esv1.ExternalSecret, failure error, again time.Duration) error {
	before := es.DeepCopy()

	next := "; tried again when an object that this depends on changes"
	if again > 0 {
		next = "; next try in " + again.Round(time.Second/10).String()
	}

	was := ready(before)
	message := failure.Error() + next
	same := was != nil && was.Status == metav1.ConditionFalse && was.ObservedGeneration == es.Generation &&
		text.Stable(was.Message) == text.Stable(message)

	// The first tries follow quickly: to write each would cost more than
	// the tries.
	if same && again > 0 && again < minReportedPause {
		return nil
	}

	setReady(es, metav1.ConditionFalse, reasonsOf(plan.TargetOf(es)).failed, message)

	if !same {
		r.event(es, corev1.EventTypeWarning, eventUpdateFailed, failure.Error())
	}

	return r.patch(ctx, before, es)
}

func (r *Reporter) event(es *esv1.ExternalSecret, kind, reason, note string) {
	if !r.limits[kind].Allow() {
		return
	}

	r.events.Eventf(es, nil, kind, reason, "Sync", "%s", text.Cut(note, text.MaxEvent))
}

// patch writes what differs of the status.
func (r *Reporter) patch(ctx context.Context, before, after *esv1.ExternalSecret) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}

	patch, err := statusPatch(before, after)
	if err != nil {
		return fmt.Errorf("cannot write the status of ExternalSecret %q: %w", after.Name, err)
	}

	// Only the metadata of the response is used: the rest need not be sent.
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: after.Namespace, Name: after.Name}}
	object.SetGroupVersionKind(esv1.GroupVersion.WithKind(esv1.ExternalSecretKind))

	err = r.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))

	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is deleted, or another object has its name.
		return nil
	case err != nil:
		return fmt.Errorf("cannot write the status of ExternalSecret %q: %w", after.Name, err)
	}

	after.ResourceVersion = object.ResourceVersion

	return nil
}

// statusPatch is the merge patch (RFC 7396) between two statuses.
func statusPatch(before, after *esv1.ExternalSecret) ([]byte, error) {
	from, err := json.Marshal(before.Status)
	if err != nil {
		return nil, err
	}

	to, err := json.Marshal(after.Status)
	if err != nil {
		return nil, err
	}

	difference, err := jsonpatch.CreateMergePatch(from, to)
	if err != nil {
		return nil, err
	}

	return json.Marshal(map[string]any{
		// The UID is a precondition: another object of that name rejects the patch.
		"metadata": map[string]any{"uid": after.UID},
		"status":   json.RawMessage(difference),
	})
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
