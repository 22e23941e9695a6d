package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionReady is the condition type that says whether the target is in sync.
const ConditionReady = "Ready"

// Reasons of an ExternalSecret's Ready condition.
const (
	// ReasonSecretSynced: the target holds what the store holds.
	ReasonSecretSynced = "SecretSynced"
	// ReasonSecretDeleted: the target was deleted because the store has
	// nothing for it any more.
	ReasonSecretDeleted = "SecretDeleted"
	// ReasonSecretMissing: creationPolicy Merge waits for its target.
	ReasonSecretMissing = "SecretMissing"
	// ReasonSecretSyncedError: the last sync failed.
	ReasonSecretSyncedError = "SecretSyncedError"
	// ReasonResourceSynced, ReasonResourceDeleted, ReasonResourceMissing and
	// ReasonResourceSyncedError are the same for a target that is no Secret.
	ReasonResourceSynced      = "ResourceSynced"
	ReasonResourceDeleted     = "ResourceDeleted"
	ReasonResourceMissing     = "ResourceMissing"
	ReasonResourceSyncedError = "ResourceSyncedError"
	// ReasonOtherController: a store that is named belongs to another
	// operator, which syncs the ExternalSecret too.
	ReasonOtherController = "OtherController"
)

// Values of TemplateItem's TemplateAs.
const (
	// TemplateAsValues makes the item one key. It is the default.
	TemplateAsValues = "Values"
	// TemplateAsKeysAndValues makes the rendered item a YAML map.
	TemplateAsKeysAndValues = "KeysAndValues"
)

// Values of Template's MergePolicy.
const (
	// TemplateReplace puts the template's keys in place of what was fetched. It
	// is the default.
	TemplateReplace = "Replace"
	// TemplateMerge adds them to it.
	TemplateMerge = "Merge"
)

// StoreRef names a store.
type StoreRef struct {
	// APIVersion of the store. Absent means external-secrets.io/v1; stores of
	// this project are secretstore.external-secrets.io/v2alpha1.
	// +optional
	// +kubebuilder:validation:Enum="";external-secrets.io/v1;secretstore.external-secrets.io/v2alpha1
	APIVersion string `json:"apiVersion,omitempty"`

	// Name of the store.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`

	// Kind is SecretStore, the default, or ClusterSecretStore.
	// +optional
	// +kubebuilder:default=SecretStore
	// +kubebuilder:validation:Enum=SecretStore;ClusterSecretStore
	Kind string `json:"kind,omitempty"`
}

// GeneratorRef names a generator.
type GeneratorRef struct {
	// APIVersion of the generator. Absent means
	// generators.external-secrets.io/v1alpha1.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the generator.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Name of the generator.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// SourceRef names where one entry's values come from, in place of
// spec.secretStoreRef.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type SourceRef struct {
	// StoreRef names a store.
	// +optional
	StoreRef *StoreRef `json:"storeRef,omitempty"`

	// GeneratorRef names a generator. In data it is deprecated and was never
	// implemented.
	// +optional
	GeneratorRef *GeneratorRef `json:"generatorRef,omitempty"`
}

// RefreshPolicy says when a store is read again.
// +kubebuilder:validation:Enum=CreatedOnce;Periodic;OnChange
type RefreshPolicy string

const (
	// RefreshCreatedOnce reads once.
	RefreshCreatedOnce RefreshPolicy = "CreatedOnce"
	// RefreshPeriodic reads at every refreshInterval. It is the default.
	RefreshPeriodic RefreshPolicy = "Periodic"
	// RefreshOnChange reads when the ExternalSecret changes.
	RefreshOnChange RefreshPolicy = "OnChange"
)

// CreationPolicy says who owns the target.
// +kubebuilder:validation:Enum=Owner;Orphan;Merge;CreateOrMerge;None
type CreationPolicy string

const (
	// CreationOwner creates the target and owns it. It is the default.
	CreationOwner CreationPolicy = "Owner"
	// CreationOrphan creates the target without owning it.
	CreationOrphan CreationPolicy = "Orphan"
	// CreationMerge adds to an existing target.
	CreationMerge CreationPolicy = "Merge"
	// CreationCreateOrMerge adds to the target, or creates it.
	CreationCreateOrMerge CreationPolicy = "CreateOrMerge"
	// CreationNone makes no target.
	CreationNone CreationPolicy = "None"
)

// DeletionPolicy says what becomes of the target when the store has nothing
// for it any more.
// +kubebuilder:validation:Enum=Delete;Merge;Retain
type DeletionPolicy string

const (
	// DeletionDelete deletes the target.
	DeletionDelete DeletionPolicy = "Delete"
	// DeletionMerge removes the keys that are gone.
	DeletionMerge DeletionPolicy = "Merge"
	// DeletionRetain leaves the target as it is. It is the default.
	DeletionRetain DeletionPolicy = "Retain"
)

// MetadataPolicy says whether a read answers with the value or its metadata.
// +kubebuilder:validation:Enum=None;Fetch
type MetadataPolicy string

const (
	// MetadataNone reads the value. It is the default.
	MetadataNone MetadataPolicy = "None"
	// MetadataFetch reads the metadata, such as tags or labels.
	MetadataFetch MetadataPolicy = "Fetch"
)

// ConversionStrategy says how a key that a Secret cannot have is changed.
// +kubebuilder:validation:Enum=Default;Unicode
type ConversionStrategy string

const (
	// ConversionDefault puts "_" for each character that is not allowed.
	ConversionDefault ConversionStrategy = "Default"
	// ConversionUnicode puts "_U<code point, 4 hex digits or more>_".
	ConversionUnicode ConversionStrategy = "Unicode"
)

// DecodingStrategy says how a value is decoded.
// +kubebuilder:validation:Enum=Auto;Base64;Base64URL;None
type DecodingStrategy string

const (
	// DecodingAuto tries Base64, then Base64URL, else leaves the value.
	DecodingAuto DecodingStrategy = "Auto"
	// DecodingBase64 decodes standard base64.
	DecodingBase64 DecodingStrategy = "Base64"
	// DecodingBase64URL decodes URL-safe base64.
	DecodingBase64URL DecodingStrategy = "Base64URL"
	// DecodingNone leaves the value. It is the default.
	DecodingNone DecodingStrategy = "None"
)

// NullBytePolicy says what becomes of a decoded value with a NUL byte.
// +kubebuilder:validation:Enum=Ignore;Fail
type NullBytePolicy string

const (
	// NullByteIgnore keeps it. It is the default.
	NullByteIgnore NullBytePolicy = "Ignore"
	// NullByteFail makes it an error.
	NullByteFail NullBytePolicy = "Fail"
)

// RemoteRef names a value at the backend.
type RemoteRef struct {
	// Key of the secret, in the provider's own terms.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Key string `json:"key"`

	// Property inside the secret.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Property string `json:"property,omitempty"`

	// Version of the secret.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Version string `json:"version,omitempty"`

	// MetadataPolicy: None, the default, or Fetch.
	// +optional
	MetadataPolicy MetadataPolicy `json:"metadataPolicy,omitempty"`

	// ConversionStrategy of the keys that dataFrom.extract finds: Default, the
	// default, or Unicode. In data it means nothing.
	// +optional
	ConversionStrategy ConversionStrategy `json:"conversionStrategy,omitempty"`

	// DecodingStrategy of the value: Auto, Base64, Base64URL or None, the
	// default.
	// +optional
	DecodingStrategy DecodingStrategy `json:"decodingStrategy,omitempty"`

	// NullBytePolicy: Ignore, the default, or Fail.
	// +optional
	NullBytePolicy NullBytePolicy `json:"nullBytePolicy,omitempty"`
}

// Data is one key of the target.
type Data struct {
	// SecretKey in the target.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	SecretKey string `json:"secretKey"`

	// RemoteRef names the value at the backend.
	RemoteRef RemoteRef `json:"remoteRef"`

	// SourceRef names a store for this entry alone.
	// +optional
	SourceRef *SourceRef `json:"sourceRef,omitempty"`
}

// FindName selects secrets by their name.
type FindName struct {
	// RegExp is an RE2 expression.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	RegExp string `json:"regexp,omitempty"`
}

// Find selects several secrets.
type Find struct {
	// Path to look below.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Path *string `json:"path,omitempty"`

	// Name selects by name.
	// +optional
	Name *FindName `json:"name,omitempty"`

	// Tags select by tags.
	// +optional
	Tags map[string]string `json:"tags,omitempty"`

	// ConversionStrategy of the keys.
	// +optional
	ConversionStrategy ConversionStrategy `json:"conversionStrategy,omitempty"`

	// DecodingStrategy of the values.
	// +optional
	DecodingStrategy DecodingStrategy `json:"decodingStrategy,omitempty"`

	// NullBytePolicy of the values.
	// +optional
	NullBytePolicy NullBytePolicy `json:"nullBytePolicy,omitempty"`
}

// Rewrite changes the keys that a dataFrom entry found.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type Rewrite struct {
	// Merge merges the JSON objects that the values are.
	// +optional
	Merge *RewriteMerge `json:"merge,omitempty"`

	// Regexp replaces in the keys.
	// +optional
	Regexp *RewriteRegexp `json:"regexp,omitempty"`

	// Transform renders each key.
	// +optional
	Transform *RewriteTransform `json:"transform,omitempty"`
}

// Values of RewriteMerge's fields.
const (
	// MergePriorityStrict refuses a key of priority that is absent. It is the
	// default.
	MergePriorityStrict = "Strict"
	// MergePriorityIgnoreNotFound ignores it.
	MergePriorityIgnoreNotFound = "IgnoreNotFound"
	// MergeConflictError refuses a field that two objects have, unless priority
	// decides. It is the default.
	MergeConflictError = "Error"
	// MergeConflictIgnore lets the later object win.
	MergeConflictIgnore = "Ignore"
	// MergeExtract makes each field of the merged object a key. It is the
	// default.
	MergeExtract = "Extract"
	// MergeJSON puts the merged object under one key, as JSON.
	MergeJSON = "JSON"
)

// RewriteMerge merges the JSON objects that the values are.
type RewriteMerge struct {
	// Into is the key of the merged object under strategy JSON.
	// +optional
	Into string `json:"into,omitempty"`

	// Priority lists the keys whose values win, the last one most.
	// +optional
	// +listType=atomic
	Priority []string `json:"priority,omitempty"`

	// PriorityPolicy says whether a key of priority may be absent: Strict, the
	// default, or IgnoreNotFound.
	// +optional
	// +kubebuilder:validation:Enum=Strict;IgnoreNotFound
	PriorityPolicy string `json:"priorityPolicy,omitempty"`

	// ConflictPolicy: Error, the default, or Ignore.
	// +optional
	// +kubebuilder:validation:Enum=Error;Ignore
	ConflictPolicy string `json:"conflictPolicy,omitempty"`

	// Strategy: Extract, the default, or JSON.
	// +optional
	// +kubebuilder:validation:Enum=Extract;JSON
	Strategy string `json:"strategy,omitempty"`
}

// RewriteRegexp replaces in the keys.
type RewriteRegexp struct {
	// Source is an RE2 expression.
	// +kubebuilder:validation:MaxLength=4096
	Source string `json:"source"`

	// Target replaces what matches; $1 stands for the first group.
	// +kubebuilder:validation:MaxLength=4096
	Target string `json:"target"`
}

// RewriteTransform renders each key.
type RewriteTransform struct {
	// Template gives the new key; .value is the old one.
	// +kubebuilder:validation:MaxLength=65536
	Template string `json:"template"`
}

// DataFrom adds several keys to the target.
type DataFrom struct {
	// Extract takes every key of one secret.
	// +optional
	Extract *RemoteRef `json:"extract,omitempty"`

	// Find takes every secret that matches.
	// +optional
	Find *Find `json:"find,omitempty"`

	// Rewrite changes the keys found, one step after the other.
	// +optional
	// +listType=atomic
	Rewrite []Rewrite `json:"rewrite,omitempty"`

	// SourceRef names a store, or a generator, for this entry alone.
	// +optional
	SourceRef *SourceRef `json:"sourceRef,omitempty"`
}

// SyncWindow is one recurring span of time.
type SyncWindow struct {
	// Schedule of the start: five cron fields, or @daily and the like, in UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule"`

	// Duration of the window.
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="duration must be positive, such as 1h"
	Duration metav1.Duration `json:"duration"`
}

// SyncWindows gate periodic refreshes.
type SyncWindows struct {
	// Kind: allow, refreshes happen inside a window only; deny, outside only.
	// +kubebuilder:validation:Enum=allow;deny
	Kind string `json:"kind"`

	// Windows; any that is open counts.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	Windows []SyncWindow `json:"windows"`
}

// TemplateMetadata is metadata that a template gives the target.
type TemplateMetadata struct {
	// Labels, values templated.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations, values templated.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Finalizers are added, never removed.
	// +optional
	// +listType=set
	Finalizers []string `json:"finalizers,omitempty"`
}

// TemplateItem is one key of a template's source.
type TemplateItem struct {
	// Key in the ConfigMap or Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`

	// TemplateAs: Values, the default, one key whose value is the rendered
	// text; KeysAndValues, the rendered text is a YAML map.
	// +optional
	// +kubebuilder:validation:Enum=Values;KeysAndValues
	TemplateAs string `json:"templateAs,omitempty"`
}

// TemplateSource names a ConfigMap or Secret with templates.
type TemplateSource struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Items of the object.
	// +listType=atomic
	Items []TemplateItem `json:"items"`
}

// TemplateFrom adds templates from elsewhere.
type TemplateFrom struct {
	// ConfigMap with templates.
	// +optional
	ConfigMap *TemplateSource `json:"configMap,omitempty"`

	// Secret with templates.
	// +optional
	Secret *TemplateSource `json:"secret,omitempty"`

	// Target: Data, the default, Annotations or Labels; for a manifest target
	// a dotted path.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Target string `json:"target,omitempty"`

	// Literal template, rendered to a YAML map.
	// +optional
	Literal *string `json:"literal,omitempty"`

	// ValuesDecodingStrategy decodes each rendered value.
	// +optional
	ValuesDecodingStrategy DecodingStrategy `json:"valuesDecodingStrategy,omitempty"`
}

// Template makes the target out of what was fetched.
type Template struct {
	// Type of the Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Type string `json:"type,omitempty"`

	// EngineVersion: v2 is the only one.
	// +optional
	// +kubebuilder:validation:Enum=v2
	EngineVersion string `json:"engineVersion,omitempty"`

	// Metadata of the target.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// MergePolicy: Replace, the default, the target holds what the template
	// names; Merge, what was fetched too.
	// +optional
	// +kubebuilder:validation:Enum=Replace;Merge
	MergePolicy string `json:"mergePolicy,omitempty"`

	// Data holds a template for each key.
	// +optional
	Data map[string]string `json:"data,omitempty"`

	// TemplateFrom adds templates from elsewhere.
	// +optional
	// +listType=atomic
	TemplateFrom []TemplateFrom `json:"templateFrom,omitempty"`
}

// ManifestReference makes the target another kind than Secret.
type ManifestReference struct {
	// APIVersion of the target.
	// +kubebuilder:validation:MinLength=1
	APIVersion string `json:"apiVersion"`

	// Kind of the target.
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"`
}

// Target is what an ExternalSecret keeps in sync.
type Target struct {
	// Name of the target. Absent means the ExternalSecret's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`

	// CreationPolicy: Owner, the default, Orphan, Merge, CreateOrMerge, None.
	// +optional
	CreationPolicy CreationPolicy `json:"creationPolicy,omitempty"`

	// DeletionPolicy: Retain, the default, Delete or Merge.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Template makes the target out of what was fetched.
	// +optional
	Template *Template `json:"template,omitempty"`

	// Manifest makes the target another kind than Secret.
	// +optional
	Manifest *ManifestReference `json:"manifest,omitempty"`

	// Immutable makes the Secret immutable.
	// +optional
	Immutable bool `json:"immutable,omitempty"`
}

// ExternalSecretSpec is what an ExternalSecret should be.
type ExternalSecretSpec struct {
	// SecretStoreRef names the store of every entry that names none itself.
	// +optional
	SecretStoreRef *StoreRef `json:"secretStoreRef,omitempty"`

	// Target is what is kept in sync. Absent means a Secret of the
	// ExternalSecret's own name, owned by it.
	// +optional
	Target *Target `json:"target,omitempty"`

	// RefreshPolicy: Periodic, the default, CreatedOnce or OnChange.
	// +optional
	RefreshPolicy RefreshPolicy `json:"refreshPolicy,omitempty"`

	// RefreshInterval between two reads of the store, as a Go duration. Absent
	// means 1h; 0 or less means that the store is read once.
	// +optional
	// +kubebuilder:default="1h0m0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="refreshInterval must be a duration such as 1h"
	RefreshInterval *metav1.Duration `json:"refreshInterval,omitempty"`

	// SyncWindows gate periodic refreshes.
	// +optional
	SyncWindows *SyncWindows `json:"syncWindows,omitempty"`

	// Data holds the target's keys, one by one. They win over dataFrom.
	// +optional
	// +listType=atomic
	Data []Data `json:"data,omitempty"`

	// DataFrom adds several keys at a time; later entries win.
	// +optional
	// +listType=atomic
	DataFrom []DataFrom `json:"dataFrom,omitempty"`
}

// Condition is what the operator last saw of an ExternalSecret, in the shape
// that existing objects have, with observedGeneration besides.
type Condition struct {
	// Type of the condition.
	Type string `json:"type"`

	// Status: True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`

	// Reason in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for people.
	// +optional
	Message string `json:"message,omitempty"`

	// LastTransitionTime of the status.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// ObservedGeneration of the ExternalSecret that the condition speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Binding names the target for servicebinding.io.
type Binding struct {
	// Name of the Secret.
	Name string `json:"name"`
}

// ExternalSecretStatus is what the operator last saw.
type ExternalSecretStatus struct {
	// RefreshTime is when the last successful sync began.
	// +optional
	// +nullable
	RefreshTime metav1.Time `json:"refreshTime,omitempty"`

	// SyncedResourceVersion is "<generation>-<SHA3-224 of labels and
	// annotations>" at the last successful sync.
	// +optional
	SyncedResourceVersion string `json:"syncedResourceVersion,omitempty"`

	// SyncedDependencies changes whenever a store that was read changes.
	// +optional
	SyncedDependencies string `json:"syncedDependencies,omitempty"`

	// SyncedForceSync is a digest of the force-sync annotation at the last
	// successful sync.
	// +optional
	SyncedForceSync string `json:"syncedForceSync,omitempty"`

	// Conditions; type Ready says whether the target is in sync.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`

	// Binding names the target for servicebinding.io.
	// +optional
	Binding *Binding `json:"binding,omitempty"`
}

// ExternalSecret keeps a Secret in sync with what a store holds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets},shortName=es
// +kubebuilder:metadata:labels="external-secrets.io/component=controller"
// +kubebuilder:selectablefield:JSONPath=`.spec.secretStoreRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.secretStoreRef.kind`
// +kubebuilder:selectablefield:JSONPath=`.spec.target.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.refreshInterval`
// +kubebuilder:printcolumn:name="StoreType",type=string,JSONPath=`.spec.secretStoreRef.kind`
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.secretStoreRef.name`
// +kubebuilder:printcolumn:name="Refresh Interval",type=string,JSONPath=`.spec.refreshInterval`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Last Sync",type=date,JSONPath=`.status.refreshTime`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ExternalSecret struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExternalSecretSpec `json:"spec,omitempty"`
	// +optional
	Status ExternalSecretStatus `json:"status,omitempty"`
}

// ExternalSecretList is a list of ExternalSecrets.
//
// +kubebuilder:object:root=true
type ExternalSecretList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalSecret `json:"items"`
}
