package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resource is objects of any kind except Secrets, in this or another cluster, read
// only. An allow-list names the objects and their fields.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories={external-secrets}
// +kubebuilder:metadata:labels="external-secrets.io/component=provider"
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.spec.server.url`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.remoteNamespace`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Resource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ResourceSpec `json:"spec"`
}

// ResourceSpec is the cluster, the namespace of the objects, the login and the
// allow-list.
type ResourceSpec struct {
	Cluster `json:",inline"`

	// RemoteNamespace is the namespace of namespaced objects. Absent means default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	RemoteNamespace string `json:"remoteNamespace,omitempty"`

	// Allow lists the objects that may be read.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Allow []ResourceRule `json:"allow"`
}

// ResourceRule allows objects of one resource.
// +kubebuilder:validation:XValidation:rule="self.resource != 'secrets' || self.apiVersion != 'v1'",message="Secrets are read through a Kubernetes config"
type ResourceRule struct {
	// APIVersion of the resource, such as example.com/v1.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9.-]+/)?v[0-9][a-z0-9]*$`
	APIVersion string `json:"apiVersion"`

	// Resource is its plural name, such as databases. A key is the name of an
	// object, with the resource and a slash before it where the list has more
	// than one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9-]+$`
	Resource string `json:"resource"`

	// ClusterScoped means that its objects have no namespace.
	// +optional
	ClusterScoped bool `json:"clusterScoped,omitempty"`

	// Names are RE2 expressions, anchored at both ends, one of which an object's
	// name must match. Absent means any name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`

	// Fields are those that may be read, such as status.endpoint, with all that
	// is below them. Absent means all of spec, data and status, and metadata
	// without managedFields.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^.\s]+(\.[^.\s]+)*$`
	Fields []string `json:"fields,omitempty"`
}

// ResourceList is a list of Resource configs.
//
// +kubebuilder:object:root=true
type ResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Resource `json:"items"`
}
