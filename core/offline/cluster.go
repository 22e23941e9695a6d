package offline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/store/resolver"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/store"
)

// Cluster is read only. Its scheme knows secretstore.external-secrets.io.
type Cluster interface {
	client.Reader
	RESTMapper() meta.RESTMapper
}

// Obstacle is what keeps a store from being read.
type Obstacle struct {
	// Object that it concerns, such as SecretStore "a" in namespace "b".
	Object string `json:"object"`
	// Reason in one word.
	Reason string `json:"reason"`
	// Message of a condition.
	Message string `json:"message"`
}

// Reasons of obstacles besides those of conditions.
const (
	// ReasonMissing: there is no such object.
	ReasonMissing = "Missing"
	// ReasonUnserved: the operator serves no store of that apiVersion.
	ReasonUnserved = "Unserved"
	// ReasonNotAdmitted: the store's conditions leave the namespace out.
	ReasonNotAdmitted = "NotAdmitted"
	// ReasonUnknown: the cluster did not let this be seen.
	ReasonUnknown = "Unknown"
)

// StoreState is the state of a store, as far as an ExternalSecret is concerned.
type StoreState struct {
	// Store as the ExternalSecret names it.
	Store Store
	// Ready condition of the store; nil where it has none.
	Ready *metav1.Condition
	// Config names the provider config.
	Config string
	// Provider is the SecretProvider that serves the store; empty where none is
	// known.
	Provider string
	// ProviderReady is its Ready condition; nil where it has none.
	ProviderReady *metav1.Condition
	// Obstacles, the nearest to the ExternalSecret first. None means that the
	// operator reads through the store.
	Obstacles []Obstacle
}

// Examine returns the state of each store of an ExternalSecret. class is that
// of the operator. What the cluster does not let the caller see is an obstacle
// with ReasonUnknown; the others are still looked for.
func Examine(ctx context.Context, cluster Cluster, es *esv1.ExternalSecret, class string) []StoreState {
	e := &examination{
		cluster: cluster, namespace: es.Namespace, class: class,
		// Whether a socket or an address is allowed is for the operator's
		// flags to say: the store's condition has the result.
		binder: resolver.NewBinder(cluster, resolver.ListedRegistrations{Reader: cluster}, kinds{cluster.RESTMapper()}, resolver.Policy{SocketDir: "/"}),
	}

	stores := plan.Stores(es)
	states := make([]StoreState, 0, len(stores))

	for _, store := range stores {
		state := StoreState{Store: store}
		e.store(ctx, &state, fieldOf(es, store))
		states = append(states, state)
	}

	return states
}

// fieldOf a store: where the ExternalSecret names it.
func fieldOf(es *esv1.ExternalSecret, store Store) string {
	if p, err := plan.New(es, nil); err == nil {
		for _, batch := range p.Batches {
			if batch.Store == store {
				return batch.Field
			}
		}
	}

	return "secretStoreRef"
}

// kinds looks up kinds in place of watching them.
type kinds struct{ mapper meta.RESTMapper }

var _ resolver.Configs = kinds{}

func (k kinds) Watch(_ context.Context, gvk schema.GroupVersionKind) error {
	_, err := k.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)

	return err
}

type examination struct {
	cluster   Cluster
	namespace string
	class     string
	binder    *resolver.Binder
}

// store fills in a state.
func (e *examination) store(ctx context.Context, state *StoreState, field string) {
	blocked := func(object, reason, message string) {
		state.Obstacles = append(state.Obstacles, Obstacle{Object: object, Reason: reason, Message: message})
	}

	served := store.Resolvers{v2alpha1.GroupVersion.String(): nil}
	if _, ok := served[state.Store.APIVersion]; !ok {
		blocked(state.Store.String(), ReasonUnserved, served.Unserved(state.Store, field).Error())

		return
	}

	key := resolver.Key{Kind: state.Store.Kind, Namespace: e.namespace, Name: state.Store.Name}
	if key.Kind == v2alpha1.ClusterSecretStoreKind {
		key.Namespace = ""
	}

	s, err := resolver.Get(ctx, e.cluster, key)

	switch {
	case isDenial(err):
		blocked(key.String(), ReasonMissing, err.Error()+e.similar(ctx, state.Store))

		return
	case err != nil:
		blocked(key.String(), ReasonUnknown, err.Error())

		return
	}

	state.Ready = s.Ready()

	// The rest is that operator's business.
	if theirs := s.Spec.Controller; theirs != "" && theirs != e.class {
		blocked(key.String(), v2alpha1.ReasonOtherController,
			fmt.Sprintf("spec.controller is %q, and this operator's class is %q: the operator of that class syncs the ExternalSecret", theirs, e.class))

		return
	}

	if err := e.binder.Admit(ctx, s, e.namespace); err != nil {
		blocked(key.String(), reasonOf(err, ReasonNotAdmitted), err.Error())
	}

	gated := s.Gated()

	if gated != nil {
		blocked(key.String(), reasonOf(gated, v2alpha1.ReasonValidationUnknown), gated.Error())
	} else if state.Ready != nil && state.Ready.Status != metav1.ConditionTrue {
		blocked(key.String(), state.Ready.Reason, "not Ready, and read all the same, as its gatingPolicy is Disabled: "+state.Ready.Message)
	}

	ref := s.Spec.ProviderConfig.ProviderRef
	state.Config = fmt.Sprintf("%s %q", ref.Kind, ref.Name)

	bound, err := e.binder.Bind(ctx, s)

	switch {
	case err == nil:
		state.Provider = bound.Provider
	case s.Healthy() && isDenial(err):
		// The operator's flags allow what the registrations do not.
	case gated == nil || !strings.Contains(gated.Error(), err.Error()):
		// The condition does not have it yet.
		blocked(key.String(), reasonOf(err, ReasonUnknown), err.Error())
	}

	e.provider(ctx, state, s)
}

// provider looks at the registration that serves a store.
func (e *examination) provider(ctx context.Context, state *StoreState, s *resolver.Store) {
	if state.Provider == "" && s.Status.Provider != nil {
		state.Provider = s.Status.Provider.Name
	}

	if state.Provider == "" {
		return
	}

	object := fmt.Sprintf("SecretProvider %q", state.Provider)
	registration := &v2alpha1.SecretProvider{}

	if err := e.cluster.Get(ctx, client.ObjectKey{Name: state.Provider}, registration); err != nil {
		reason := ReasonUnknown
		if client.IgnoreNotFound(err) == nil {
			reason = ReasonMissing
		}

		state.Obstacles = append(state.Obstacles, Obstacle{Object: object, Reason: reason, Message: err.Error()})

		return
	}

	state.ProviderReady = meta.FindStatusCondition(registration.Status.Conditions, v2alpha1.ConditionReady)

	switch ready := state.ProviderReady; {
	case ready == nil:
		state.Obstacles = append(state.Obstacles, Obstacle{Object: object, Reason: ReasonUnknown, Message: "the operator has not looked at it yet"})
	case ready.Status != metav1.ConditionTrue:
		state.Obstacles = append(state.Obstacles, Obstacle{Object: object, Reason: ready.Reason, Message: ready.Message})
	}
}

func isDenial(err error) bool {
	_, ok := errors.AsType[*store.DenialError](err)

	return ok
}

// reasonOf what forbids something; fallback where it is a denial of no reason
// of its own.
func reasonOf(err error, fallback string) string {
	denial, ok := errors.AsType[*store.DenialError](err)

	switch {
	case !ok:
		return ReasonUnknown
	case fallback == ReasonNotAdmitted:
		return ReasonNotAdmitted
	case denial.Reason == "":
		return fallback
	default:
		return denial.Reason
	}
}

// shownSimilar bounds the stores that a message proposes.
const shownSimilar = 5

// similar proposes stores in place of one that does not exist.
func (e *examination) similar(ctx context.Context, wanted Store) string {
	var (
		local   v2alpha1.SecretStoreList
		cluster v2alpha1.ClusterSecretStoreList
		near    []string
		others  []string
	)

	// Without permission to list them there is no proposal.
	_ = e.cluster.List(ctx, &local, client.InNamespace(e.namespace))
	_ = e.cluster.List(ctx, &cluster)

	add := func(kind, name string) {
		text := Store{Kind: kind, Name: name}.String()

		switch {
		case alike(name, wanted.Name):
			near = append(near, text)
		case kind == wanted.Kind:
			others = append(others, text)
		}
	}

	for _, s := range local.Items {
		add(v2alpha1.SecretStoreKind, s.Name)
	}

	for _, s := range cluster.Items {
		add(v2alpha1.ClusterSecretStoreKind, s.Name)
	}

	found, lead := near, "; did you mean "
	if len(near) == 0 {
		found, lead = others, "; there are "
	}

	if len(found) == 0 {
		return "; there is none of that kind"
	}

	slices.Sort(found)

	if more := len(found) - shownSimilar; more > 0 {
		found = append(found[:shownSimilar], fmt.Sprintf("%d more", more))
	}

	return lead + strings.Join(found, ", ")
}

// alike reports whether one name may be a misspelling of another: a part of
// it, or a few letters away.
func alike(a, b string) bool {
	if strings.Contains(a, b) || strings.Contains(b, a) {
		return true
	}

	return distance(a, b) <= max(1, min(len(a), len(b))/3)
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1

		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}

			diagonal = row[j+1]
			row[j+1] = min(row[j+1]+1, row[j]+1, substitute)
		}
	}

	return row[len(b)]
}
