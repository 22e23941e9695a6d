package offline

import (
	"errors"
	"time"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/store"
)

// The types of a plan.
type (
	// Plan of a sync.
	Plan = plan.Plan
	// Batch is everything that is asked of one store.
	Batch = plan.Batch
	// Entry is one entry of data or dataFrom.
	Entry = plan.Entry
	// Store names a store.
	Store = store.Reference
	// Read is one read of a store.
	Read = store.Read
	// Find asks a store for every secret that matches.
	Find = store.Find
	// Object holds templates.
	Object = plan.Object
	// Policies of a target, with its name and kind.
	Policies = plan.Target
	// Due reports whether a sync is due and when the next one is.
	Due = plan.Due
)

// Kinds of objects that templates are read from.
const (
	KindConfigMap = plan.KindConfigMap
	KindSecret    = plan.KindSecret
)

// NewPlan returns the plan of an ExternalSecret. What is wrong with the object is
// an error that Problems takes apart.
func NewPlan(es *esv1.ExternalSecret) (*Plan, error) { return plan.New(es, nil) }

// Problems are what a NewPlan that failed has found, one by one.
func Problems(err error) []string {
	if malformed, ok := errors.AsType[*plan.Error](err); ok {
		return malformed.Problems
	}

	return nil
}

// StoresOf an ExternalSecret, whatever else is wrong with it.
func StoresOf(es *esv1.ExternalSecret) []Store { return plan.Stores(es) }

// ObjectsOf an ExternalSecret: those that its templates are read from.
func ObjectsOf(es *esv1.ExternalSecret) []Object { return plan.Objects(es) }

// PoliciesOf an ExternalSecret's target, defaults filled in.
func PoliciesOf(es *esv1.ExternalSecret) Policies { return plan.TargetOf(es) }

// Interval between two reads of a store, default filled in, and the most that
// jitter takes off it.
func Interval(es *esv1.ExternalSecret) (interval, jitter time.Duration) {
	return plan.Interval(es), plan.MaxJitter(es)
}

// Window reports whether sync windows let a periodic refresh through at a moment,
// and when that changes next; zero where it never does.
func Window(windows *esv1.SyncWindows, now time.Time) (open bool, edge time.Time) {
	return plan.Window(windows, now)
}

// NextRefresh returns when an ExternalSecret is read again if nothing but the
// time changes. The operator acts on changes at once, so that what it depends
// on, and the target, are taken to be as the last sync left them.
func NextRefresh(es *esv1.ExternalSecret, now time.Time) Due {
	return plan.Decide(es, plan.State{
		Dependencies: es.Status.SyncedDependencies,
		Intact:       true,
		Frozen:       plan.TargetOf(es).Immutable && es.Status.Binding != nil,
		Now:          now,
	})
}
