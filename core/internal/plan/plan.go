package plan

import (
	"fmt"
	"strings"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
)

// Store names a store as an ExternalSecret's references do, defaults filled in.
type Store struct{ APIVersion, Kind, Name string }

// String names the store for people.
func (s Store) String() string { return fmt.Sprintf("%s %q", s.Kind, s.Name) }

// Read is one read of a store. Equal reads are one.
type Read struct {
	// Key, Property and Version of the secret.
	Key, Property, Version string
	// Map asks for every key of the secret.
	Map bool
	// Metadata asks for the secret's metadata.
	Metadata bool
}

// Batch is everything that is read from one store.
type Batch struct {
	// Store to read.
	Store Store
	// Field that names the store, for error messages.
	Field string
	// Reads without repetition.
	Reads []Read
}

// Entry is one entry of data or dataFrom, and the read that answers it.
type Entry struct {
	// Field of the entry, such as spec.data[0].
	Field string
	// SecretKey in the target; empty for an entry of dataFrom.
	SecretKey string
	// Batch and Read are indices: Plan.Batches[Batch].Reads[Read].
	Batch, Read int
	// Decoding, Conversion and NullByte of what was read, defaults filled in.
	Decoding   esv1.DecodingStrategy
	Conversion esv1.ConversionStrategy
	NullByte   esv1.NullBytePolicy
}

// Target is what is kept in sync.
type Target struct {
	// Name of the Secret.
	Name string
	// Creation and Deletion policy, defaults filled in.
	Creation esv1.CreationPolicy
	Deletion esv1.DeletionPolicy
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

// New makes the plan of an ExternalSecret. A field that makes no sense, or
// whose behaviour this version does not have, is an *Error.
func New(es *esv1.ExternalSecret) (*Plan, error) {
	b := &builder{es: es, plan: &Plan{Target: target(es)}}
	b.refuseUnsupported()

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
func Stores(es *esv1.ExternalSecret) []Store {
	var (
		stores []Store
		seen   = map[Store]bool{}
	)

	add := func(ref *esv1.StoreRef) {
		if ref == nil || ref.Name == "" {
			return
		}

		if store := storeOf(ref); !seen[store] {
			seen[store] = true
			stores = append(stores, store)
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

// TargetName of an ExternalSecret.
func TargetName(es *esv1.ExternalSecret) string { return target(es).Name }

func target(es *esv1.ExternalSecret) Target {
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
	}

	return t
}

func storeOf(ref *esv1.StoreRef) Store {
	store := Store{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}
	if store.Kind == "" {
		store.Kind = "SecretStore"
	}

	if store.APIVersion == "" {
		store.APIVersion = "external-secrets.io/v1"
	}

	return store
}

type builder struct {
	es       *esv1.ExternalSecret
	plan     *Plan
	problems []string
}

func (b *builder) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func (b *builder) unsupported(used bool, field string) {
	if used {
		b.problem("not supported yet: %s", field)
	}
}

// refuseUnsupported names every field that is set and would be ignored.
func (b *builder) refuseUnsupported() {
	spec := &b.es.Spec
	b.unsupported(spec.SyncWindows != nil, "spec.syncWindows")

	t := spec.Target
	if t == nil {
		return
	}

	b.unsupported(b.plan.Target.Creation != esv1.CreationOwner, "spec.target.creationPolicy "+string(t.CreationPolicy))
	b.unsupported(b.plan.Target.Deletion != esv1.DeletionRetain, "spec.target.deletionPolicy "+string(t.DeletionPolicy))
	b.unsupported(t.Template != nil, "spec.target.template")
	b.unsupported(t.Manifest != nil, "spec.target.manifest")
	b.unsupported(t.Immutable, "spec.target.immutable")
}

func (b *builder) data(field string, data *esv1.Data) {
	ref := &data.RemoteRef

	b.add(field, data.SecretKey, data.SourceRef, Read{
		Key: ref.Key, Property: ref.Property, Version: ref.Version, Metadata: ref.MetadataPolicy == esv1.MetadataFetch,
	}, ref.DecodingStrategy, "", ref.NullBytePolicy)
}

func (b *builder) dataFrom(field string, from *esv1.DataFrom) {
	b.unsupported(from.Find != nil, field+".find")
	b.unsupported(len(from.Rewrite) > 0, field+".rewrite")

	generator := from.SourceRef != nil && from.SourceRef.GeneratorRef != nil

	switch {
	case from.Extract != nil && from.Find != nil, generator && (from.Extract != nil || from.Find != nil):
		b.problem("%s: set one of extract, find and sourceRef.generatorRef", field)
	case generator:
		b.unsupported(true, field+".sourceRef.generatorRef")
	case from.Extract != nil:
		ref := from.Extract
		b.add(field+".extract", "", from.SourceRef, Read{
			Key: ref.Key, Property: ref.Property, Version: ref.Version, Map: true, Metadata: ref.MetadataPolicy == esv1.MetadataFetch,
		}, ref.DecodingStrategy, ref.ConversionStrategy, ref.NullBytePolicy)
	case from.Find == nil:
		b.problem("%s is empty: set extract, find or sourceRef.generatorRef", field)
	}
}

func (b *builder) add(
	field, secretKey string, source *esv1.SourceRef, read Read,
	decoding esv1.DecodingStrategy, conversion esv1.ConversionStrategy, nullByte esv1.NullBytePolicy,
) {
	if decoding == "" {
		decoding = esv1.DecodingNone
	}

	if conversion == "" {
		conversion = esv1.ConversionDefault
	}

	if nullByte == "" {
		nullByte = esv1.NullByteIgnore
	}

	ref, storeField := b.es.Spec.SecretStoreRef, "spec.secretStoreRef"

	if source != nil {
		switch {
		case source.StoreRef != nil:
			ref, storeField = source.StoreRef, field+".sourceRef.storeRef"
		case source.GeneratorRef != nil:
			b.problem("%s.sourceRef.generatorRef: data takes no generator; use dataFrom", field)

			return
		}
	}

	if ref == nil || ref.Name == "" {
		b.problem("%s names no store, and spec.secretStoreRef.name is empty", field)

		return
	}

	batch := b.batch(storeOf(ref), storeField)
	b.plan.Entries = append(b.plan.Entries, Entry{
		Field: field, SecretKey: secretKey, Batch: batch, Read: b.read(batch, read),
		Decoding: decoding, Conversion: conversion, NullByte: nullByte,
	})
}

func (b *builder) batch(store Store, field string) int {
	for i := range b.plan.Batches {
		if b.plan.Batches[i].Store == store {
			return i
		}
	}

	b.plan.Batches = append(b.plan.Batches, Batch{Store: store, Field: field})

	return len(b.plan.Batches) - 1
}

func (b *builder) read(batch int, read Read) int {
	reads := &b.plan.Batches[batch].Reads
	for i := range *reads {
		if (*reads)[i] == read {
			return i
		}
	}

	*reads = append(*reads, read)

	return len(*reads) - 1
}
