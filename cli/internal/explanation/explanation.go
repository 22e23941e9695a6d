// Package explanation says in words what the operator does with an
// ExternalSecret: what it reads, what it creates, when, and why it is not in sync.
// It decides nothing itself.
package explanation

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/core/offline"
)

// Explanation of one ExternalSecret.
type Explanation struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	// File that contains it; empty where it was read from a cluster.
	File string `json:"file,omitempty"`
	// Status is that of the cluster.
	Status *Status `json:"status,omitempty"`
	Target Target  `json:"target"`
	// Stores that are read, one batch each.
	Stores []Store `json:"stores"`
	// Templates are the objects that templates are read from.
	Templates []Template `json:"templates,omitempty"`
	Refresh   Refresh    `json:"refresh"`
	// Problems keep it from being synced until it is changed.
	Problems []string `json:"problems,omitempty"`
	// Notes are worth knowing.
	Notes []string `json:"notes,omitempty"`
}

// Target that is kept in sync.
type Target struct {
	APIVersion     string `json:"apiVersion"`
	Kind           string `json:"kind"`
	Name           string `json:"name"`
	Type           string `json:"type,omitempty"`
	CreationPolicy string `json:"creationPolicy"`
	DeletionPolicy string `json:"deletionPolicy"`
	Immutable      bool   `json:"immutable,omitempty"`
}

// Store that is read.
type Store struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Reads      []Read `json:"reads,omitempty"`
	Finds      []Find `json:"finds,omitempty"`
	// State in the cluster.
	State *StoreState `json:"state,omitempty"`
}

// Read of a store.
type Read struct {
	Key      string `json:"key"`
	Property string `json:"property,omitempty"`
	Version  string `json:"version,omitempty"`
	// Map asks for every key of the secret.
	Map bool `json:"map,omitempty"`
	// Metadata is read in place of the value.
	Metadata bool `json:"metadata,omitempty"`
	// For are the fields that the read answers.
	For []string `json:"for"`
}

// Find of a store.
type Find struct {
	Path *string           `json:"path,omitempty"`
	Name string            `json:"name,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
	For  []string          `json:"for"`

	text string
}

// Template is an object that templates are read from.
type Template struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Refresh says when stores are read again.
type Refresh struct {
	Policy string `json:"policy"`
	// Interval between two reads and the most that jitter takes off it; empty
	// where the policy has none.
	Interval string   `json:"interval,omitempty"`
	Jitter   string   `json:"jitter,omitempty"`
	Windows  *Windows `json:"windows,omitempty"`

	once bool
}

// Windows gate periodic refreshes.
type Windows struct {
	Kind    string   `json:"kind"`
	Windows []Window `json:"windows"`
	// Open reports whether a refresh may happen now.
	Open bool `json:"open"`
	// Changes is when Open changes next; nil means never.
	Changes *metav1.Time `json:"changes,omitempty"`

	in time.Duration
}

// Window is one of them.
type Window struct {
	Schedule string `json:"schedule"`
	Duration string `json:"duration"`
}

// Status of an ExternalSecret in a cluster.
type Status struct {
	Ready Condition `json:"ready"`
	// LastRefresh is when the last sync that succeeded began; nil means never.
	LastRefresh *metav1.Time `json:"lastRefresh,omitempty"`
	Next        Next         `json:"nextRefresh"`

	now time.Time
}

// Next refresh.
type Next struct {
	// Due says that it is due now.
	Due bool `json:"due"`
	// Why it is due, or what it waits for.
	Why string `json:"why,omitempty"`
	// Time of it; nil where it is due, or where only a change brings it.
	Time *metav1.Time `json:"time,omitempty"`
	// In is how far away that is.
	In string `json:"in,omitempty"`
}

// Condition of type Ready.
type Condition struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason,omitempty"`
	Message string                 `json:"message,omitempty"`
	Since   *metav1.Time           `json:"since,omitempty"`
	// Stale says that it speaks of an older generation of the object.
	Stale bool `json:"stale,omitempty"`
}

// StoreState is the state of a store in the cluster.
type StoreState struct {
	Ready         *Condition `json:"ready,omitempty"`
	Config        string     `json:"config,omitempty"`
	Provider      string     `json:"provider,omitempty"`
	ProviderReady *Condition `json:"providerReady,omitempty"`
	// Obstacles, the nearest to the ExternalSecret first.
	Obstacles []offline.Obstacle `json:"obstacles,omitempty"`
}

// Of an ExternalSecret, as far as the object itself shows it.
func Of(es *esv1.ExternalSecret, now time.Time) *Explanation {
	e := &Explanation{Name: es.Name, Namespace: es.Namespace, Target: targetOf(es), Refresh: refreshOf(es, now)}

	for _, object := range offline.ObjectsOf(es) {
		e.Templates = append(e.Templates, Template{Kind: object.Kind, Name: object.Name})
	}

	plan, err := offline.NewPlan(es)
	if err != nil {
		if e.Problems = offline.Problems(err); len(e.Problems) == 0 {
			e.Problems = []string{err.Error()}
		}

		for _, store := range offline.StoresOf(es) {
			e.Stores = append(e.Stores, Store{APIVersion: store.APIVersion, Kind: store.Kind, Name: store.Name})
		}
	} else {
		e.Stores = storesOf(plan)
		e.note(plan)
	}

	return e
}

// note explains what is often unexpected.
func (e *Explanation) note(plan *offline.Plan) {
	for _, batch := range plan.Batches {
		if batch.Store.APIVersion == esv1.GroupVersion.String() {
			e.Notes = append(e.Notes, fmt.Sprintf("%s.apiVersion means %s, set or absent: stores of that version are served by the full build of the operator only", batch.Field, batch.Store.APIVersion))
		}
	}

	if e.Target.Kind != offline.KindSecret {
		e.Notes = append(e.Notes, "a target that is no Secret needs the operator's flag --unsafe-allow-generic-targets")
	}
}

func targetOf(es *esv1.ExternalSecret) Target {
	policies := offline.PoliciesOf(es)
	t := Target{
		APIVersion: "v1", Kind: policies.Noun(), Name: policies.Name,
		CreationPolicy: string(policies.Creation), DeletionPolicy: string(policies.Deletion), Immutable: policies.Immutable,
	}

	if !policies.IsSecret() {
		t.APIVersion = policies.Manifest.GroupVersion().String()
	} else if es.Spec.Target != nil && es.Spec.Target.Template != nil {
		t.Type = es.Spec.Target.Template.Type
	}

	return t
}

func storesOf(plan *offline.Plan) []Store {
	stores := make([]Store, 0, len(plan.Batches))

	for _, batch := range plan.Batches {
		store := Store{APIVersion: batch.Store.APIVersion, Kind: batch.Store.Kind, Name: batch.Store.Name}

		for _, read := range batch.Reads {
			store.Reads = append(store.Reads, Read{Key: read.Key, Property: read.Property, Version: read.Version, Map: read.Map, Metadata: read.Metadata})
		}

		for _, find := range batch.Finds {
			store.Finds = append(store.Finds, Find{Path: find.Path, Name: find.Name, Tags: find.Tags, text: find.String()})
		}

		stores = append(stores, store)
	}

	for _, entry := range plan.Entries {
		field := entry.Field
		if entry.SecretKey != "" {
			field += " (" + entry.SecretKey + ")"
		}

		store := &stores[entry.Batch]
		if entry.Find {
			store.Finds[entry.Read].For = append(store.Finds[entry.Read].For, field)
		} else {
			store.Reads[entry.Read].For = append(store.Reads[entry.Read].For, field)
		}
	}

	return stores
}

func refreshOf(es *esv1.ExternalSecret, now time.Time) Refresh {
	r := Refresh{Policy: string(es.Spec.RefreshPolicy)}
	if r.Policy == "" {
		r.Policy = string(esv1.RefreshPeriodic)
	}

	if r.Policy == string(esv1.RefreshPeriodic) {
		interval, jitter := offline.Interval(es)
		if r.once = interval <= 0; !r.once {
			r.Interval, r.Jitter = short(interval), short(jitter)
		}
	}

	windows := es.Spec.SyncWindows
	if windows == nil {
		return r
	}

	open, edge := offline.Window(windows, now)
	r.Windows = &Windows{Kind: windows.Kind, Open: open, Changes: timeOf(edge), in: edge.Sub(now)}

	for _, window := range windows.Windows {
		r.Windows.Windows = append(r.Windows.Windows, Window{Schedule: window.Schedule, Duration: short(window.Duration.Duration)})
	}

	return r
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}

	return &metav1.Time{Time: t.UTC()}
}

// InCluster adds the state in the cluster.
func (e *Explanation) InCluster(es *esv1.ExternalSecret, states []offline.StoreState, now time.Time) {
	e.Status = statusOf(es, now)

	for _, state := range states {
		for i := range e.Stores {
			store := &e.Stores[i]
			if store.APIVersion == state.Store.APIVersion && store.Kind == state.Store.Kind && store.Name == state.Store.Name {
				store.State = stateOf(state)
			}
		}
	}
}

func stateOf(state offline.StoreState) *StoreState {
	return &StoreState{
		Ready: conditionOf(state.Ready), Config: state.Config,
		Provider: state.Provider, ProviderReady: conditionOf(state.ProviderReady), Obstacles: state.Obstacles,
	}
}

func conditionOf(c *metav1.Condition) *Condition {
	if c == nil {
		return nil
	}

	return &Condition{Status: c.Status, Reason: c.Reason, Message: c.Message, Since: timeOf(c.LastTransitionTime.Time)}
}

func statusOf(es *esv1.ExternalSecret, now time.Time) *Status {
	s := &Status{Ready: Condition{Status: metav1.ConditionUnknown, Message: "the operator has not looked at it yet"}, LastRefresh: timeOf(es.Status.RefreshTime.Time), now: now}

	for _, c := range es.Status.Conditions {
		if c.Type == esv1.ConditionReady {
			s.Ready = Condition{
				Status: c.Status, Reason: c.Reason, Message: c.Message,
				Since: timeOf(c.LastTransitionTime.Time), Stale: c.ObservedGeneration != 0 && c.ObservedGeneration != es.Generation,
			}
		}
	}

	due := offline.NextRefresh(es, now)

	switch {
	case s.Ready.Reason == esv1.ReasonOtherController:
		s.Next = Next{Why: "that of another operator"}
	case s.Ready.Reason == esv1.ReasonSecretMissing, s.Ready.Reason == esv1.ReasonResourceMissing:
		s.Next = Next{Why: "when the target exists"}
	case due.Now:
		s.Next = Next{Due: true, Why: due.Why}
	case due.Next > 0:
		s.Next = Next{Time: timeOf(now.Add(due.Next).Truncate(time.Second)), In: short(due.Next.Round(time.Second))}
	default:
		s.Next = Next{Why: "when something changes, and not before"}
	}

	return s
}
