package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/external-secrets/eso/sdk/document"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
	"github.com/external-secrets/eso/providers/kubernetes/internal/cluster"
)

const (
	requestTimeout = 20 * time.Second
	// pageSize is the page size of a search.
	pageSize = 200
)

// Store reads the objects of an allow-list.
type Store struct {
	cluster   *cluster.Cluster
	client    dynamic.Interface
	namespace string
	rules     []rule
}

var (
	_ provider.Reader  = (*Store)(nil)
	_ provider.Finder  = (*Store)(nil)
	_ provider.Checker = (*Store)(nil)
)

// rule is one resource of the allow-list.
type rule struct {
	resource      schema.GroupVersionResource
	clusterScoped bool
	// names are nil where any is allowed, fields where all are.
	names  []*regexp.Regexp
	fields [][]string
}

// New returns the store of a config.
func New(ctx context.Context, env provider.Environment, config *v2alpha1.Resource) (*Store, error) {
	rules, err := rulesOf(config.Spec.Allow)
	if err != nil {
		return nil, err
	}

	target, err := cluster.Open(ctx, env, &config.Spec.Cluster)
	if err != nil {
		return nil, err
	}

	client, err := dynamic.NewForConfigAndClient(target.Config, target.Client)
	if err != nil {
		target.Close()

		return nil, provider.InvalidConfig("spec.server: %v", err)
	}

	s := &Store{cluster: target, client: client, namespace: config.Spec.RemoteNamespace, rules: rules}
	if s.namespace == "" {
		s.namespace = metav1.NamespaceDefault
	}

	return s, nil
}

func rulesOf(allow []v2alpha1.ResourceRule) ([]rule, error) {
	if len(allow) == 0 {
		return nil, provider.InvalidConfig("spec.allow: lists no resource: nothing could be read")
	}

	rules := make([]rule, 0, len(allow))

	for i, a := range allow {
		field := fmt.Sprintf("spec.allow[%d]", i)

		version, err := schema.ParseGroupVersion(a.APIVersion)
		if err != nil || a.Resource == "" {
			return nil, provider.InvalidConfig("%s: apiVersion %q and resource %q name no resource", field, a.APIVersion, a.Resource)
		}

		r := rule{resource: version.WithResource(a.Resource), clusterScoped: a.ClusterScoped}

		// Subresources are no objects; Secrets have a kind of config of their
		// own.
		if strings.Contains(a.Resource, "/") || r.resource.Group == "" && r.resource.Resource == "secrets" {
			return nil, provider.InvalidConfig("%s.resource: %q: Secrets are read through a Kubernetes config, and subresources not at all", field, a.Resource)
		}

		for _, other := range rules {
			if other.resource.Resource == r.resource.Resource {
				return nil, provider.InvalidConfig("%s.resource: %q is listed twice: keys would be ambiguous", field, a.Resource)
			}
		}

		for _, name := range a.Names {
			// Compiled by itself first, because it could close the group around
			// it.
			if _, err := regexp.Compile(name); err != nil {
				return nil, provider.InvalidConfig("%s.names: %v", field, err)
			}

			anchored, err := regexp.Compile(`\A(?:` + name + `)\z`)
			if err != nil {
				return nil, provider.InvalidConfig("%s.names: %v", field, err)
			}

			r.names = append(r.names, anchored)
		}

		for _, dotted := range a.Fields {
			r.fields = append(r.fields, strings.Split(dotted, "."))
		}

		rules = append(rules, r)
	}

	return rules, nil
}

// Read reads each object once, however many of its properties are read.
func (s *Store) Read(ctx context.Context, reads []provider.Read) []provider.Result {
	return document.Read(ctx, reads, s.fetch)
}

// Find reads the objects that match. Path is a resource of the list; absent
// means all. Tags are labels.
func (s *Store) Find(ctx context.Context, query provider.Query, found func(provider.Found) error) error {
	searched := 0

	for _, r := range s.rules {
		if query.Path != nil && strings.Trim(*query.Path, "/") != r.resource.Resource && strings.Trim(*query.Path, "/") != "" {
			continue
		}

		searched++

		if err := s.find(ctx, r, query, found); err != nil {
			return err
		}
	}

	if searched == 0 {
		return provider.AccessDenied("find below path %q: spec.allow lists no such resource", *query.Path)
	}

	return nil
}

func (s *Store) find(ctx context.Context, r rule, query provider.Query, found func(provider.Found) error) error {
	options := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(query.Tags).String(), Limit: pageSize}

	for {
		page, err := s.list(ctx, r, options)
		if err != nil {
			return err
		}

		for i := range page.Items {
			object := &page.Items[i]

			key := object.GetName()
			if len(s.rules) > 1 {
				key = r.resource.Resource + "/" + key
			}

			if !r.allows(object.GetName()) || !query.Matches(key, object.GetLabels()) {
				continue
			}

			read, err := r.document(object)
			if err != nil {
				return err
			}

			if err := found(provider.Found{Key: key, Value: read.Raw}); err != nil {
				return err
			}
		}

		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (s *Store) list(ctx context.Context, r rule, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	page, err := s.objects(r).List(ctx, options)
	if err != nil {
		return nil, cluster.Error("list "+r.resource.GroupResource().String(), err)
	}

	return page, nil
}

// Exists reports whether an object, or a property of it, exists.
func (s *Store) Exists(ctx context.Context, key, property string) (bool, error) {
	return document.Exists(ctx, key, property, s.fetch)
}

// Validate checks the login. Without a name it cannot check which objects the
// login may read.
func (s *Store) Validate(ctx context.Context) (provider.Validation, error) {
	for _, r := range s.rules {
		_, err := s.list(ctx, r, metav1.ListOptions{Limit: 1})

		switch typed := provider.AsError(orNone(err)); {
		case err == nil:
		case typed.Code == codes.PermissionDenied:
			return provider.Validation{Unknown: true, Message: typed.Message + ": only a read shows whether it may be read by name"}, nil
		default:
			return provider.Validation{}, err
		}
	}

	return provider.Validation{}, nil
}

// orNone returns an error with the code Unknown for nil, for AsError.
func orNone(err error) error {
	if err == nil {
		return &provider.Error{}
	}

	return err
}

// Close ends the connections.
func (s *Store) Close(context.Context) error {
	s.cluster.Close()

	return nil
}

func (s *Store) objects(r rule) dynamic.ResourceInterface {
	if r.clusterScoped {
		return s.client.Resource(r.resource)
	}

	return s.client.Resource(r.resource).Namespace(s.namespace)
}

// fetch reads one object.
func (s *Store) fetch(ctx context.Context, key, version string, metadataOnly bool) (document.Document, error) {
	r, name, err := s.locate(key)
	if err != nil {
		return document.Document{}, err
	}

	if version != "" {
		return document.Document{}, provider.InvalidRequest("version %q of %q: Kubernetes keeps no versions", version, key)
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	object, err := s.objects(r).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return document.Document{}, cluster.Error(fmt.Sprintf("read %s %q", r.resource.GroupResource(), name), err)
	}

	if !metadataOnly {
		return r.document(object)
	}

	labels, annotations := object.GetLabels(), object.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}

	if annotations == nil {
		annotations = map[string]string{}
	}

	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")

	full := map[string]any{"labels": labels, "annotations": annotations}

	return encode(object, pruned(map[string]any{"metadata": generic(full)}, r.fields)["metadata"])
}

// locate returns the rule of a key and the object's name.
func (s *Store) locate(key string) (rule, string, error) {
	resource, name, qualified := strings.Cut(key, "/")
	if !qualified {
		resource, name = "", key
	}

	if resource == "" && len(s.rules) > 1 {
		return rule{}, "", provider.InvalidRequest("key %q names no resource: with more than one in spec.allow it has the form resource/name", key)
	}

	if faults := content.IsPathSegmentName(name); name == "" || len(faults) > 0 {
		return rule{}, "", provider.InvalidRequest("key %q is no name of an object", key)
	}

	for _, r := range s.rules {
		if resource != "" && r.resource.Resource != resource {
			continue
		}

		if !r.allows(name) {
			break
		}

		return r, name, nil
	}

	return rule{}, "", provider.AccessDenied("key %q: spec.allow does not list it", key)
}

func (r rule) allows(name string) bool {
	if r.names == nil {
		return true
	}

	for _, expression := range r.names {
		if expression.MatchString(name) {
			return true
		}
	}

	return false
}

// document returns the fields of an object that may be read.
func (r rule) document(object *unstructured.Unstructured) (document.Document, error) {
	if object.GetAPIVersion() == "v1" && object.GetKind() == "Secret" {
		return document.Document{}, provider.AccessDenied("%q is a Secret: those are read through a Kubernetes config", object.GetName())
	}

	unstructured.RemoveNestedField(object.Object, "metadata", "managedFields")

	return encode(object, pruned(object.Object, r.fields))
}

// pruned returns the listed fields of an object, or all.
func pruned(object map[string]any, paths [][]string) map[string]any {
	if paths == nil {
		return object
	}

	left := map[string]any{}

	for _, parts := range paths {
		value, found, err := unstructured.NestedFieldNoCopy(object, parts...)
		if err != nil || !found {
			continue
		}

		// Paths may have a common prefix.
		at := left
		for _, part := range parts[:len(parts)-1] {
			next, ok := at[part].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[part] = next
			}

			at = next
		}

		at[parts[len(parts)-1]] = value
	}

	return left
}

// generic converts maps of texts to the types of unstructured objects.
func generic(value map[string]any) map[string]any {
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}

	var made map[string]any
	if err := json.Unmarshal(text, &made); err != nil {
		return nil
	}

	return made
}

func encode(object *unstructured.Unstructured, value any) (document.Document, error) {
	if value == nil {
		value = map[string]any{}
	}

	raw, err := document.Encode(value)
	if err != nil {
		return document.Document{}, provider.InvalidRequest("cannot encode %q", object.GetName())
	}

	return document.Document{
		Raw:      raw,
		Revision: string(object.GetUID()) + "@" + object.GetResourceVersion(),
	}, nil
}
