package plan

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"

	"github.com/external-secrets/eso/core/generator"
	"github.com/external-secrets/eso/core/store"
)

// Batch is everything that is read from one store, or one call of a generator.
type Batch struct {
	// Store to read.
	Store store.Reference
	// Generator to call in place of reading a store; nil where a store is read.
	Generator *generator.Reference
	// Field of the reference to the store or generator, for error messages.
	Field string
	// Reads without repetition.
	Reads []store.Read
	// Finds without repetition.
	Finds []store.Find
}

// Source names the store or the generator, for messages.
func (b Batch) Source() string {
	if b.Generator != nil {
		return b.Generator.String()
	}

	return b.Store.String()
}

// Entry is one entry of data or dataFrom, and the read that answers it.
type Entry struct {
	// Field of the entry, such as spec.data[0].
	Field string
	// SecretKey in the target; empty for an entry of dataFrom.
	SecretKey string
	// Batch and Read are indices: Plan.Batches[Batch].Reads[Read], or, where
	// Find is set, Finds[Read]. The batch of a generator has one result.
	Batch, Read int
	// Find says that the entry is answered by a Find.
	Find bool
	// Rewrite changes the keys of an entry of dataFrom, one after the other.
	Rewrite []esv1.Rewrite
	// Decoding, Conversion and NullByte of what was read, defaults filled in.
	Decoding   esv1.DecodingStrategy
	Conversion esv1.ConversionStrategy
	NullByte   esv1.NullBytePolicy
}

// Target is what is kept in sync.
type Target struct {
	// Name of the target.
	Name string
	// Creation and Deletion policy, defaults filled in.
	Creation esv1.CreationPolicy
	Deletion esv1.DeletionPolicy
	// Immutable means that a Secret is not changed after its creation.
	Immutable bool
	// Manifest is the kind of a target that is no Secret; else empty.
	Manifest schema.GroupVersionKind
}

// IsSecret reports whether the target is a Secret.
func (t Target) IsSecret() bool { return t.Manifest.Empty() }

// Noun names the target's kind, for messages.
func (t Target) Noun() string {
	if t.IsSecret() {
		return KindSecret
	}

	return t.Manifest.Kind
}

// Owns reports whether the target belongs to the ExternalSecret and goes with it.
func (t Target) Owns() bool { return t.Creation == esv1.CreationOwner }

// Replaces reports whether the target holds what the ExternalSecret says and
// nothing else.
func (t Target) Replaces() bool {
	return t.Creation == esv1.CreationOwner || t.Creation == esv1.CreationOrphan
}

// Creates reports whether a missing target is created.
func (t Target) Creates() bool {
	return t.Replaces() || t.Creation == esv1.CreationCreateOrMerge
}

// Plan of a sync. dataFrom's entries come first and in order, data's after
// them, so that a later entry wins over an earlier one.
type Plan struct {
	Batches []Batch
	Entries []Entry
	Target  Target
}

// Error says which fields of an ExternalSecret keep it from being synced. Only
// a change of the object ends it.
type Error struct{ Problems []string }

// Error lists the problems.
func (e *Error) Error() string { return strings.Join(e.Problems, "; ") }

// New returns the plan of an ExternalSecret. generators reports whether an
// apiVersion of generators is served; nil serves none. A field that is invalid,
// or that this version does not support, is an *Error.
func New(es *esv1.ExternalSecret, generators func(apiVersion string) bool) (*Plan, error) {
	b := &builder{es: es, generators: generators, plan: &Plan{Target: TargetOf(es)}}
	b.manifest()
	b.windows()
	b.policies()
	b.template()

	if len(es.Spec.Data) == 0 && len(es.Spec.DataFrom) == 0 {
		b.problem("spec.data and spec.dataFrom are both empty: there is nothing to sync")
	}

	for i := range es.Spec.DataFrom {
		b.dataFrom(fmt.Sprintf("spec.dataFrom[%d]", i), &es.Spec.DataFrom[i])
	}

	for i := range es.Spec.Data {
		b.data(fmt.Sprintf("spec.data[%d]", i), &es.Spec.Data[i])
	}

	if len(b.problems) > 0 {
		return nil, &Error{Problems: b.problems}
	}

	return b.plan, nil
}

// Stores that an ExternalSecret refers to, whatever else is wrong with it.
func Stores(es *esv1.ExternalSecret) []store.Reference {
	var (
		stores []store.Reference
		seen   = map[store.Reference]bool{}
	)

	add := func(ref *esv1.StoreRef) {
		if ref == nil || ref.Name == "" {
			return
		}

		if reference := storeOf(ref); !seen[reference] {
			seen[reference] = true
			stores = append(stores, reference)
		}
	}

	add(es.Spec.SecretStoreRef)

	for _, data := range es.Spec.Data {
		if data.SourceRef != nil {
			add(data.SourceRef.StoreRef)
		}
	}

	for _, from := range es.Spec.DataFrom {
		if from.SourceRef != nil {
			add(from.SourceRef.StoreRef)
		}
	}

	return stores
}

// TargetOf an ExternalSecret, defaults filled in.
func TargetOf(es *esv1.ExternalSecret) Target {
	t := Target{Name: es.Name, Creation: esv1.CreationOwner, Deletion: esv1.DeletionRetain}

	if given := es.Spec.Target; given != nil {
		if given.Name != "" {
			t.Name = given.Name
		}

		if given.CreationPolicy != "" {
			t.Creation = given.CreationPolicy
		}

		if given.DeletionPolicy != "" {
			t.Deletion = given.DeletionPolicy
		}

		t.Immutable = given.Immutable

		if given.Manifest != nil {
			t.Manifest = schema.FromAPIVersionAndKind(given.Manifest.APIVersion, given.Manifest.Kind)
		}
	}

	return t
}

func storeOf(ref *esv1.StoreRef) store.Reference {
	return store.Reference{
		APIVersion: cmp.Or(ref.APIVersion, "external-secrets.io/v1"), Kind: cmp.Or(ref.Kind, "SecretStore"), Name: ref.Name,
	}
}

func generatorOf(ref *esv1.GeneratorRef) generator.Reference {
	return generator.Reference{APIVersion: cmp.Or(ref.APIVersion, generator.DefaultAPIVersion), Kind: ref.Kind, Name: ref.Name}
}

type builder struct {
	es         *esv1.ExternalSecret
	generators func(apiVersion string) bool
	plan       *Plan
	problems   []string
}

func (b *builder) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// manifest checks a target that is no Secret.
func (b *builder) manifest() {
	t := b.es.Spec.Target
	if t == nil || t.Manifest == nil {
		return
	}

	gv, err := schema.ParseGroupVersion(t.Manifest.APIVersion)

	switch {
	case err != nil || gv.Version == "" || t.Manifest.Kind == "":
		b.problem("spec.target.manifest: %q and %q are not the apiVersion and kind of an object, such as v1 and ConfigMap", t.Manifest.APIVersion, t.Manifest.Kind)
	case gv.Group == "" && t.Manifest.Kind == KindSecret:
		b.problem("spec.target.manifest: a Secret is what a target is without it; leave it out")
	case gv.Group == esv1.GroupVersion.Group:
		b.problem("spec.target.manifest: an ExternalSecret cannot create objects of %s", gv.Group)
	}

	if t.Immutable {
		b.problem("spec.target.immutable is for Secrets, not for %s", t.Manifest.Kind)
	}
}

func (b *builder) windows() {
	if b.es.Spec.SyncWindows == nil {
		return
	}

	for i, window := range b.es.Spec.SyncWindows.Windows {
		field := fmt.Sprintf("spec.syncWindows.windows[%d]", i)

		if _, err := parseSchedule(window.Schedule); err != nil {
			b.problem("%s.schedule: %v", field, err)
		}

		if window.Duration.Duration <= 0 {
			b.problem("%s.duration is not positive", field)
		}
	}
}

// policies refuses combinations that contradict themselves.
func (b *builder) policies() {
	t := b.plan.Target

	switch {
	case t.Deletion == esv1.DeletionDelete && (t.Creation == esv1.CreationMerge || t.Creation == esv1.CreationCreateOrMerge || t.Creation == esv1.CreationNone):
		b.problem("spec.target.deletionPolicy Delete with creationPolicy %s: only a target that the ExternalSecret owns is deleted; use Merge or Retain", t.Creation)
	case t.Deletion == esv1.DeletionMerge && t.Creation == esv1.CreationNone:
		b.problem("spec.target.deletionPolicy Merge with creationPolicy None: there is no target to take keys from")
	}

	// With the other policies an absent key may be filled by a later entry.
	if t.Deletion != esv1.DeletionRetain {
		return
	}

	seen := map[string]int{}

	for i, data := range b.es.Spec.Data {
		if former, twice := seen[data.SecretKey]; twice {
			b.problem("spec.data[%d].secretKey %q is that of spec.data[%d], too", i, data.SecretKey, former)
		}

		seen[data.SecretKey] = i
	}
}

func (b *builder) data(field string, data *esv1.Data) {
	ref := &data.RemoteRef

	b.addRead(Entry{Field: field, SecretKey: data.SecretKey, Decoding: ref.DecodingStrategy, NullByte: ref.NullBytePolicy}, data.SourceRef, store.Read{
		Key: ref.Key, Property: ref.Property, Version: ref.Version, Metadata: ref.MetadataPolicy == esv1.MetadataFetch,
	})
}

func (b *builder) dataFrom(field string, from *esv1.DataFrom) {
	b.rewrite(field, from.Rewrite)

	generates := from.SourceRef != nil && from.SourceRef.GeneratorRef != nil

	switch {
	case from.Extract != nil && from.Find != nil, generates && (from.Extract != nil || from.Find != nil):
		b.problem("%s: set one of extract, find and sourceRef.generatorRef", field)
	case generates:
		b.generate(field, from)
	case from.Extract != nil:
		ref := from.Extract
		b.addRead(Entry{
			Field: field + ".extract", Rewrite: from.Rewrite,
			Decoding: ref.DecodingStrategy, Conversion: ref.ConversionStrategy, NullByte: ref.NullBytePolicy,
		}, from.SourceRef, store.Read{
			Key: ref.Key, Property: ref.Property, Version: ref.Version, Map: true, Metadata: ref.MetadataPolicy == esv1.MetadataFetch,
		})
	case from.Find != nil:
		b.find(field+".find", from)
	default:
		b.problem("%s is empty: set extract, find or sourceRef.generatorRef", field)
	}
}

func (b *builder) find(field string, from *esv1.DataFrom) {
	find := store.Find{Path: from.Find.Path, Tags: from.Find.Tags}
	if from.Find.Name != nil {
		find.Name = from.Find.Name.RegExp
	}

	if _, err := regexp.Compile(find.Name); err != nil {
		b.problem("%s.name.regexp: %v", field, err)

		return
	}

	batch, ok := b.batchOf(field, from.SourceRef)
	if !ok {
		return
	}

	b.entry(Entry{
		Field: field, Rewrite: from.Rewrite, Batch: batch, Read: b.findIn(batch, find), Find: true,
		Decoding: from.Find.DecodingStrategy, Conversion: from.Find.ConversionStrategy, NullByte: from.Find.NullBytePolicy,
	})
}

// generate adds a call of a generator: one per entry, as two entries of one
// generator have different values.
func (b *builder) generate(field string, from *esv1.DataFrom) {
	field += ".sourceRef.generatorRef"
	reference := generatorOf(from.SourceRef.GeneratorRef)

	if b.generators == nil || !b.generators(reference.APIVersion) {
		b.problem("not supported yet: %s", field)

		return
	}

	b.plan.Batches = append(b.plan.Batches, Batch{Generator: &reference, Field: field})
	b.entry(Entry{Field: field, Rewrite: from.Rewrite, Batch: len(b.plan.Batches) - 1})
}

// rewrite checks what can be checked before anything is read.
func (b *builder) rewrite(field string, rewrites []esv1.Rewrite) {
	for i, rewrite := range rewrites {
		at := fmt.Sprintf("%s.rewrite[%d]", field, i)

		switch {
		case rewrite.Regexp != nil:
			if _, err := regexp.Compile(rewrite.Regexp.Source); err != nil {
				b.problem("%s.regexp.source: %v", at, err)
			}
		case rewrite.Merge != nil:
			if rewrite.Merge.Strategy == esv1.MergeJSON && rewrite.Merge.Into == "" {
				b.problem("%s.merge.into is required with strategy JSON: it names the key of the merged object", at)
			}
		case rewrite.Transform != nil:
		default:
			b.problem("%s is empty: set merge, regexp or transform", at)
		}
	}
}

func (b *builder) addRead(entry Entry, source *esv1.SourceRef, read store.Read) {
	batch, ok := b.batchOf(entry.Field, source)
	if !ok {
		return
	}

	entry.Batch, entry.Read = batch, b.read(batch, read)
	b.entry(entry)
}

// entry adds an entry, defaults filled in.
func (b *builder) entry(entry Entry) {
	if entry.Decoding == "" {
		entry.Decoding = esv1.DecodingNone
	}

	if entry.Conversion == "" {
		entry.Conversion = esv1.ConversionDefault
	}

	if entry.NullByte == "" {
		entry.NullByte = esv1.NullByteIgnore
	}

	b.plan.Entries = append(b.plan.Entries, entry)
}

// batchOf finds the batch of an entry's store.
func (b *builder) batchOf(field string, source *esv1.SourceRef) (batch int, ok bool) {
	ref, storeField := b.es.Spec.SecretStoreRef, "spec.secretStoreRef"

	if source != nil {
		switch {
		case source.StoreRef != nil:
			ref, storeField = source.StoreRef, field+".sourceRef.storeRef"
		case source.GeneratorRef != nil:
			b.problem("%s.sourceRef.generatorRef: data takes no generator; use dataFrom", field)

			return 0, false
		}
	}

	if ref == nil || ref.Name == "" {
		b.problem("%s names no store, and spec.secretStoreRef.name is empty", field)

		return 0, false
	}

	return b.batch(storeOf(ref), storeField), true
}

func (b *builder) batch(reference store.Reference, field string) int {
	for i := range b.plan.Batches {
		if b.plan.Batches[i].Generator == nil && b.plan.Batches[i].Store == reference {
			return i
		}
	}

	b.plan.Batches = append(b.plan.Batches, Batch{Store: reference, Field: field})

	return len(b.plan.Batches) - 1
}

func (b *builder) read(batch int, read store.Read) int {
	reads := &b.plan.Batches[batch].Reads
	for i := range *reads {
		if (*reads)[i] == read {
			return i
		}
	}

	*reads = append(*reads, read)

	return len(*reads) - 1
}

func equal(a, b store.Find) bool {
	samePath := a.Path == b.Path || (a.Path != nil && b.Path != nil && *a.Path == *b.Path)

	return samePath && a.Name == b.Name && maps.Equal(a.Tags, b.Tags)
}

func (b *builder) findIn(batch int, find store.Find) int {
	finds := &b.plan.Batches[batch].Finds
	for i := range *finds {
		if equal((*finds)[i], find) {
			return i
		}
	}

	*finds = append(*finds, find)

	return len(*finds) - 1
}
