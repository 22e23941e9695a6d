package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Load reads objects from YAML files, and gives those without uid or generation
// some.
func Load(files ...string) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured

	for _, file := range files {
		text, err := os.Open(filepath.Clean(file))
		if err != nil {
			return nil, fmt.Errorf("cannot read objects: %w", err)
		}

		found, err := decode(text)
		_ = text.Close()

		if err != nil {
			return nil, fmt.Errorf("cannot read objects from %s: %w", file, err)
		}

		objects = append(objects, found...)
	}

	return objects, nil
}

func decode(text io.Reader) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured

	decoder := yaml.NewYAMLOrJSONDecoder(text, 4096)

	for n := 1; ; n++ {
		var object unstructured.Unstructured

		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}

		if err != nil {
			return nil, fmt.Errorf("object %d: %w", n, err)
		}

		if object.Object == nil {
			continue // an empty document
		}

		if object.GetAPIVersion() == "" || object.GetKind() == "" || object.GetNamespace() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("object %d: apiVersion, kind, metadata.namespace and metadata.name are needed", n)
		}

		complete(&object)

		objects = append(objects, object)
	}
}

// complete does what an API server would.
func complete(object *unstructured.Unstructured) {
	if object.GetUID() == "" {
		_ = unstructured.SetNestedField(object.Object, "uid-"+strings.ToLower(object.GetKind())+"-"+object.GetName(), "metadata", "uid")
	}

	if object.GetGeneration() == 0 {
		object.SetGeneration(1)
	}

	object.SetResourceVersion("1")

	texts, _, _ := unstructured.NestedStringMap(object.Object, "stringData")
	if object.GetKind() != "Secret" || len(texts) == 0 {
		return
	}

	data, _, _ := unstructured.NestedStringMap(object.Object, "data")
	if data == nil {
		data = map[string]string{}
	}

	for name, text := range texts {
		data[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}

	unstructured.RemoveNestedField(object.Object, "stringData")
	_ = unstructured.SetNestedStringMap(object.Object, data, "data")
}

// Server serves objects. Make it with Start.
type Server struct {
	web     *http.Server
	address string
	objects map[string]*unstructured.Unstructured
	// resources by group and version.
	resources map[schema.GroupVersion][]metav1.APIResource
}

// Start serves objects on a free port of loopback until Stop.
func Start(ctx context.Context, objects []unstructured.Unstructured) (*Server, error) {
	s := &Server{objects: map[string]*unstructured.Unstructured{}, resources: map[schema.GroupVersion][]metav1.APIResource{
		{Version: "v1"}: {
			{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"get"}},
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"get"}},
			{Name: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true, Verbs: metav1.Verbs{"get"}},
			{Name: "serviceaccounts/token", Kind: "TokenRequest", Group: "authentication.k8s.io", Version: "v1", Namespaced: true, Verbs: metav1.Verbs{"create"}},
		},
	}}

	for i := range objects {
		object := &objects[i]
		gvk := object.GroupVersionKind()
		plural, singular := meta.UnsafeGuessKindToResource(gvk)

		at := gvk.GroupVersion()
		if !slices.ContainsFunc(s.resources[at], func(r metav1.APIResource) bool { return r.Kind == gvk.Kind }) {
			s.resources[at] = append(s.resources[at], metav1.APIResource{
				Name: plural.Resource, SingularName: singular.Resource, Kind: gvk.Kind, Namespaced: true, Verbs: metav1.Verbs{"get"},
			})
		}

		s.objects[path.Join(prefix(at), "namespaces", object.GetNamespace(), plural.Resource, object.GetName())] = object
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot serve objects: %w", err)
	}

	s.address = listener.Addr().String()
	s.web = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}

	go func() { _ = s.web.Serve(listener) }()

	return s, nil
}

// Stop ends the server.
func (s *Server) Stop() { _ = s.web.Close() }

// Kubeconfig to reach the server with.
func (s *Server) Kubeconfig() []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: conformance
contexts: [{name: conformance, context: {cluster: conformance, user: conformance}}]
clusters: [{name: conformance, cluster: {server: "http://%s"}}]
users: [{name: conformance, user: {}}]
`, s.address)
}

// prefix of the paths of a group and version.
func prefix(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}

	return "/apis/" + gv.Group + "/" + gv.Version
}

// ServeHTTP answers discovery, reads of objects, and requests of tokens.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := path.Clean(r.URL.Path)

	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(at, "/token"):
		s.token(w, r)
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "objects can be read, and nothing else")
	case at == "/api":
		answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
	case at == "/apis":
		answer(w, http.StatusOK, s.groups())
	default:
		s.read(w, at)
	}
}

func (s *Server) read(w http.ResponseWriter, at string) {
	for gv, resources := range s.resources {
		if at == prefix(gv) {
			answer(w, http.StatusOK, metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: resources,
			})

			return
		}
	}

	if object, ok := s.objects[at]; ok {
		answer(w, http.StatusOK, object.Object)

		return
	}

	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, path.Base(at)+" is not among the objects that the kit was given")
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}

	for gv := range s.resources {
		if gv.Group == "" {
			continue
		}

		version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}

	return list
}

// token answers a TokenRequest with a token that no server accepts.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	var request map[string]any
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the request is no JSON")

		return
	}

	request["status"] = map[string]any{"token": "a-token-of-the-conformance-kit", "expirationTimestamp": time.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339)}
	answer(w, http.StatusCreated, request)
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	answer(w, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)

	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // the caller sees an answer that ends early
}
