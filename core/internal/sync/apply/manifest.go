package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/internal/compat"
	"github.com/external-secrets/eso/core/internal/sync/plan"
	"github.com/external-secrets/eso/core/internal/sync/render"
)

// Manifests writes targets that are no Secrets: ConfigMaps and custom
// resources. Only fields that are applied are the ExternalSecret's; others stay
// with their writers.
type Manifests struct {
	client client.Client
	cached client.Reader
	direct client.Reader
	mapper meta.RESTMapper
	watch  func(ctx context.Context, gvk schema.GroupVersionKind) error
	// allowed is the operator's flag.
	allowed bool
}

var _ Writer = (*Manifests)(nil)

// ManifestOptions are what a Manifests works with.
type ManifestOptions struct {
	// Client writes.
	Client client.Client
	// Cached reads managed objects of kinds that are watched.
	Cached client.Reader
	// Direct reads from the API server.
	Direct client.Reader
	// Mapper maps the cluster's kinds.
	Mapper meta.RESTMapper
	// Watch begins to watch a kind, unless that is done already.
	Watch func(ctx context.Context, gvk schema.GroupVersionKind) error
	// Allowed is --unsafe-allow-generic-targets.
	Allowed bool
}

// NewManifests returns a writer.
func NewManifests(options ManifestOptions) *Manifests {
	return &Manifests{
		client: options.Client, cached: options.Cached, direct: options.Direct, mapper: options.Mapper, watch: options.Watch, allowed: options.Allowed,
	}
}

// Observe gives the whole object.
func (m *Manifests) Observe(ctx context.Context, es *esv1.ExternalSecret) (client.Object, error) {
	target := plan.TargetOf(es)

	if err := m.permit(ctx, target); err != nil || target.Creation == esv1.CreationNone {
		return nil, err
	}

	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(target.Manifest)

	key := client.ObjectKey{Namespace: es.Namespace, Name: target.Name}

	err := m.cached.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		err = m.direct.Get(ctx, key, object)
	}

	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // absence is an answer here
	case err != nil:
		return nil, fmt.Errorf("cannot read %s %q in namespace %q: %w", target.Manifest.Kind, target.Name, es.Namespace, err)
	default:
		return object, nil
	}
}

// permit refuses kinds that may not be written.
func (m *Manifests) permit(ctx context.Context, target plan.Target) error {
	if !m.allowed {
		return &OwnershipError{Message: "spec.target.manifest is refused: the operator runs without --unsafe-allow-generic-targets"}
	}

	gvk := target.Manifest
	mapping, err := m.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)

	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("spec.target.manifest: the cluster has no kind %s of %s", gvk.Kind, gvk.GroupVersion())
	case err != nil:
		return fmt.Errorf("cannot look up %s of %s: %w", gvk.Kind, gvk.GroupVersion(), err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		return &OwnershipError{Message: fmt.Sprintf("spec.target.manifest: %s of %s is cluster-scoped; a target lies in the ExternalSecret's namespace", gvk.Kind, gvk.GroupVersion())}
	}

	if err := m.watch(ctx, gvk); err != nil {
		return fmt.Errorf("cannot watch %s of %s; does the operator's role allow get, list, watch, create, patch and delete of %s? %w", gvk.Kind, gvk.GroupVersion(), mapping.Resource.Resource, err)
	}

	return nil
}

// Intact compares what the operator owns of the object with the digest of what
// it wrote.
func (m *Manifests) Intact(es *esv1.ExternalSecret, current client.Object) bool {
	target := plan.TargetOf(es)

	switch target.Creation {
	case esv1.CreationNone, esv1.CreationOrphan:
		return true
	case esv1.CreationOwner, esv1.CreationMerge, esv1.CreationCreateOrMerge:
	}

	object, _ := current.(*unstructured.Unstructured)

	return intactManifest(es, target, object)
}

func intactManifest(es *esv1.ExternalSecret, target plan.Target, object *unstructured.Unstructured) bool {
	if object == nil || object.GetDeletionTimestamp() != nil || object.GetLabels()[esv1.LabelManaged] != esv1.LabelManagedValue {
		return false
	}

	if target.Owns() && !metav1.IsControlledBy(object, es) {
		return false
	}

	fields := appliedFields(object, compat.FieldManager(es.Name))
	if fields == nil {
		return false
	}

	rendered, stored := digests(object.GetAnnotations()[contentAnnotation(es, target)])
	if stored == "" {
		stored = rendered
	}

	return stored == digest(ownedContent(object.Object, fields))
}

// digests reads the annotation of a target's content: the digest of what was
// rendered and, where the API server has made something else of it, that of
// what it stores.
func digests(annotation string) (rendered, stored string) {
	rendered, stored, _ = strings.Cut(annotation, ".")

	return rendered, stored
}

// Frozen is never true: only Secrets can be immutable.
func (m *Manifests) Frozen(*esv1.ExternalSecret, client.Object) bool { return false }

// contentAnnotation holds the digests of what was written.
func contentAnnotation(es *esv1.ExternalSecret, target plan.Target) string {
	if target.Replaces() {
		return esv1.AnnotationDataHash
	}

	return mergedAnnotation(es)
}

// appliedFields are the fields that a manager has applied (KEP-555); nil where
// it never did.
func appliedFields(object metav1.Object, manager string) map[string]any {
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != manager || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}

		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return nil
		}

		return fields
	}

	return nil
}

// ownedContent is what fields cover of an object, besides what every object
// has. A list counts as a whole.
func ownedContent(object map[string]any, fields map[string]any) map[string]any {
	content := map[string]any{}

	for field, below := range fields {
		name, ok := strings.CutPrefix(field, "f:")
		if !ok || name == "metadata" {
			continue
		}

		value, there := object[name]
		if !there {
			continue
		}

		deeper, _ := below.(map[string]any)
		inner, isMap := value.(map[string]any)

		if !isMap || len(deeper) == 0 {
			content[name] = value

			continue
		}

		content[name] = ownedContent(inner, deeper)
	}

	return content
}

// digest of a content. Maps are written in the order of their keys.
func digest(content map[string]any) string {
	text, err := json.Marshal(content)
	if err != nil {
		return ""
	}

	return compat.ContentHash(text)
}

// Apply applies what was rendered to the object.
func (m *Manifests) Apply(ctx context.Context, es *esv1.ExternalSecret, target *render.Target, observed client.Object) (Outcome, error) {
	current, _ := observed.(*unstructured.Unstructured)

	switch {
	case target.Creation == esv1.CreationNone:
		return Outcome{}, nil
	case current == nil && !target.Creates():
		return Outcome{}, &GoneError{Kind: target.Manifest.Kind, Name: target.Name}
	}

	if current != nil {
		if err := foreign(es, target, current, false); err != nil {
			return Outcome{}, err
		}
	}

	outcome, err := m.replace(ctx, es, target, current)
	if err != nil || !target.Owns() {
		return outcome, err
	}

	// Not before the target exists: users of the former one must not be
	// left with neither.
	outcome.Removed, err = m.removeRenamed(ctx, es, target)

	return outcome, err
}

// upstreamManager is the manager under which External Secrets Operator writes
// targets that are no Secrets: the name of its binary.
const upstreamManager = "external-secrets"

// replace writes the object, unless it is already what it should be.
func (m *Manifests) replace(ctx context.Context, es *esv1.ExternalSecret, target *render.Target, current *unstructured.Unstructured) (Outcome, error) {
	manager := compat.FieldManager(es.Name)
	rendered := digest(target.Content)

	// The API server converts the same content to the same result as before.
	former, stored := "", ""
	if current != nil {
		former, stored = digests(current.GetAnnotations()[contentAnnotation(es, target.Target)])
	}

	if former != rendered {
		stored = ""
	}

	wanted := desired(es, target, current, rendered, stored)
	if unchangedManifest(es, target, current, wanted) {
		return Outcome{}, nil
	}

	// Upstream writes all targets under one name: what others have of it in a
	// target that several share cannot be distinguished from this ExternalSecret's.
	if current != nil && target.Replaces() && current.GetLabels()[esv1.LabelManaged] == esv1.LabelManagedValue {
		if err := adopt(ctx, m.client, current, upstreamManager, manager); err != nil {
			return Outcome{}, err
		}
	}

	if err := m.apply(ctx, target, wanted, manager); err != nil {
		return Outcome{}, err
	}

	// The API server fills in defaults inside of lists and leaves out what is
	// null: to detect another client's change, what it stores must be known,
	// after a restart as well.
	was := stored
	if was == "" {
		was = rendered
	}

	if now := digest(ownedContent(wanted.Object, appliedFields(wanted, manager))); now != was {
		stored = now
		if stored == rendered {
			stored = ""
		}

		wanted = desired(es, target, current, rendered, stored)
		if err := m.apply(ctx, target, wanted, manager); err != nil {
			return Outcome{}, err
		}
	}

	outcome := Outcome{Change: Updated, ResourceVersion: wanted.GetResourceVersion()}
	if current == nil {
		outcome.Change = Created
	}

	return outcome, nil
}

// apply applies an object, which becomes what the API server answers.
func (m *Manifests) apply(ctx context.Context, target *render.Target, object *unstructured.Unstructured, manager string) error {
	err := m.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(manager), client.ForceOwnership)

	return writeError(target, "", err)
}

// desired is the object to apply, with the digests of what was rendered and,
// unless empty, of what the API server stores.
func desired(es *esv1.ExternalSecret, target *render.Target, current *unstructured.Unstructured, rendered, stored string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(object.Object, target.Content)

	labels, annotations := maps.Clone(target.Labels), maps.Clone(target.Annotations)
	if labels == nil {
		labels = map[string]string{}
	}

	if annotations == nil {
		annotations = map[string]string{}
	}

	labels[esv1.LabelManaged] = esv1.LabelManagedValue
	annotations[contentAnnotation(es, target.Target)] = rendered

	if stored != "" {
		annotations[contentAnnotation(es, target.Target)] += "." + stored
	}

	object.SetGroupVersionKind(target.Manifest)
	object.SetNamespace(es.Namespace)
	object.SetName(target.Name)

	if target.Owns() {
		labels[esv1.LabelOwner] = compat.Owner(es.Namespace, es.Name)

		isController, block := true, true
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: esv1.GroupVersion.String(), Kind: esv1.ExternalSecretKind, Name: es.Name, UID: es.UID,
			Controller: &isController, BlockOwnerDeletion: &block,
		}})
	}

	if !target.Owns() && current != nil {
		// Without it, a target that is gone would be made, and one that has come
		// in its place would be written to whosever it is.
		object.SetUID(current.GetUID())
	}

	object.SetLabels(labels)
	object.SetAnnotations(annotations)

	if len(target.Finalizers) > 0 {
		object.SetFinalizers(target.Finalizers)
	}

	return object
}

func unchangedManifest(es *esv1.ExternalSecret, target *render.Target, current, wanted *unstructured.Unstructured) bool {
	if !intactManifest(es, target.Target, current) || metav1.IsControlledBy(current, es) != target.Owns() {
		return false
	}

	has, annotations := current.GetLabels(), current.GetAnnotations()
	for key, value := range wanted.GetLabels() {
		if has[key] != value {
			return false
		}
	}

	for key, value := range wanted.GetAnnotations() {
		if annotations[key] != value {
			return false
		}
	}

	// A label or finalizer that is no longer rendered must be removed.
	fields := appliedFields(current, compat.FieldManager(es.Name))
	metadata, _ := fields["f:metadata"].(map[string]any)
	finalizers, _ := metadata["f:finalizers"].(map[string]any)

	return len(fieldNames(metadata["f:labels"])) == len(wanted.GetLabels()) &&
		len(fieldNames(metadata["f:annotations"])) == len(wanted.GetAnnotations()) &&
		sameSet(members(finalizers), wanted.GetFinalizers())
}

func fieldNames(fields any) []string {
	below, _ := fields.(map[string]any)

	var names []string

	for field := range below {
		if strings.HasPrefix(field, "f:") {
			names = append(names, field)
		}
	}

	return names
}

// Delete deletes the object.
func (m *Manifests) Delete(ctx context.Context, es *esv1.ExternalSecret, observed client.Object) (Outcome, error) {
	current, _ := observed.(*unstructured.Unstructured)
	if current == nil {
		return Outcome{}, nil
	}

	return remove(ctx, m.client, es, current.GetKind(), current)
}

// removeRenamed deletes objects that the ExternalSecret owns under another name
// than its target's.
func (m *Manifests) removeRenamed(ctx context.Context, es *esv1.ExternalSecret, target *render.Target) ([]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(target.Manifest.GroupVersion().WithKind(target.Manifest.Kind + "List"))

	if err := m.cached.List(ctx, list, client.InNamespace(es.Namespace), client.MatchingLabels{esv1.LabelOwner: compat.Owner(es.Namespace, es.Name)}); err != nil {
		return nil, fmt.Errorf("cannot list the objects of ExternalSecret %q: %w", es.Name, err)
	}

	var removed []string

	for i := range list.Items {
		old := &list.Items[i]
		if old.GetName() == target.Name || !metav1.IsControlledBy(old, es) || old.GetDeletionTimestamp() != nil {
			continue
		}

		if _, err := remove(ctx, m.client, es, old.GetKind(), old); err != nil {
			return nil, err
		}

		removed = append(removed, old.GetName())
	}

	slices.Sort(removed)

	return removed, nil
}
