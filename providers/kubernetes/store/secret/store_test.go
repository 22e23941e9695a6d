package secret

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/ownership"
	"github.com/external-secrets/eso/sdk/provider"

	"github.com/external-secrets/eso/providers/kubernetes/api/v2alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 10 * time.Second

// references hold a token.
type references struct{}

func (references) SecretKey(context.Context, metav1alpha1.SecretKeySelector) ([]byte, error) {
	return []byte("token"), nil
}

func (references) CABundle(context.Context, metav1alpha1.CASource) ([]byte, error) {
	return nil, errors.New("none")
}

func (references) ServiceAccountToken(context.Context, metav1alpha1.ServiceAccountSelector, ...string) (string, error) {
	return "token", nil
}

func (references) Namespace() string { return "ns" }

// apiServer answers as the test says, by method and path.
type apiServer struct {
	*httptest.Server

	mu      sync.Mutex
	handles map[string]http.HandlerFunc
	writes  []string
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()

	a := &apiServer{handles: map[string]http.HandlerFunc{}}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)

	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()

	name := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/")
	if r.URL.Query().Get("watch") != "" {
		name = "WATCH"
	}

	handle := a.handles[name]
	if r.Method != http.MethodGet {
		a.writes = append(a.writes, name)
	}
	a.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")

	if handle == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, strings.TrimPrefix(name, "GET secrets/"))

		return
	}

	handle(w, r)
}

func (a *apiServer) on(name string, handle http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.handles[name] = handle
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, name string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ //nolint:errchkjson // the test fails without it
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), //nolint:gosec // an HTTP status
		Reason: reason, Message: fmt.Sprintf("secrets %q not found", name), Details: &metav1.StatusDetails{Name: name, Kind: "secrets"},
	})
}

func (a *apiServer) holds(secret *corev1.Secret) {
	secret.Namespace, secret.APIVersion, secret.Kind = "default", "v1", "Secret"
	a.on("GET secrets/"+secret.Name, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(secret) })
}

func (a *apiServer) store(t *testing.T) *Store {
	t.Helper()

	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})

	s, err := New(t.Context(), provider.Environment{References: references{}}, &v2alpha1.Kubernetes{Spec: v2alpha1.KubernetesSpec{Cluster: v2alpha1.Cluster{
		Server: &v2alpha1.KubernetesServer{URL: a.URL, CABundle: ca},
		Auth:   &v2alpha1.KubernetesAuth{ServiceAccount: &metav1alpha1.ServiceAccountSelector{Name: "app"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close(context.Background()) })

	return s
}

// sent is the Secret of a request.
func sent(t *testing.T, r *http.Request) *corev1.Secret {
	t.Helper()

	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}

	secret := &corev1.Secret{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, secret); err != nil {
		t.Fatal(err)
	}

	secret.APIVersion, secret.Kind = "v1", "Secret"

	return secret
}

func TestRead(t *testing.T) {
	a := newAPIServer(t)
	a.holds(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "u", ResourceVersion: "7", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "repeats the data"}},
		Data:       map[string][]byte{"password": []byte("<s3cret>"), "json": []byte(`{"user":"app"}`)},
	})
	a.holds(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bytes"}, Data: map[string][]byte{"k": {0xff}}})

	for _, test := range []struct {
		name, why string
		read      provider.Read
		want      provider.Result
		code      codes.Code
		reason    string
	}{
		{name: "property", why: "a key of the data", read: provider.Read{Key: "db", Property: "password"}, want: provider.Result{Value: []byte("<s3cret>"), Revision: "u@7"}},
		{name: "whole", why: "as JSON, with what HTML would escape", read: provider.Read{Key: "db"}, want: provider.Result{Value: []byte(`{"json":"{\"user\":\"app\"}","password":"<s3cret>"}`), Revision: "u@7"}},
		{name: "map", why: "each key", read: provider.Read{Key: "db", Shape: provider.Map}, want: provider.Result{Map: map[string][]byte{"password": []byte("<s3cret>"), "json": []byte(`{"user":"app"}`)}, Revision: "u@7"}},
		{name: "map of a property", why: "a key may hold JSON", read: provider.Read{Key: "db", Property: "json", Shape: provider.Map}, want: provider.Result{Map: map[string][]byte{"user": []byte("app")}, Revision: "u@7"}},
		{name: "metadata", why: "labels and annotations, without the copy of the data", read: provider.Read{Key: "db", Metadata: true}, want: provider.Result{Value: []byte(`{"annotations":{},"labels":{"team":"a"}}`), Revision: "u@7"}},
		{name: "unchanged", why: "it need not travel", read: provider.Read{Key: "db", KnownRevision: "u@7"}, want: provider.Result{NotModified: true, Revision: "u@7"}},
		{name: "binary map", why: "bytes are bytes", read: provider.Read{Key: "bytes", Shape: provider.Map}, want: provider.Result{Map: map[string][]byte{"k": {0xff}}, Revision: "@"}},
		{name: "binary whole", why: "JSON would change them", read: provider.Read{Key: "bytes"}, code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest},
		{name: "no key", why: "the Secret is there", read: provider.Read{Key: "db", Property: "none"}, code: codes.NotFound, reason: pb.ReasonPropertyNotFound},
		{name: "no Secret", why: "proven by the API server", read: provider.Read{Key: "none"}, code: codes.NotFound, reason: pb.ReasonNotFound},
		{name: "a path", why: "it would leave the namespace", read: provider.Read{Key: "../other/secrets/db"}, code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest},
		{name: "version", why: "there are none", read: provider.Read{Key: "db", Version: "1"}, code: codes.InvalidArgument, reason: pb.ReasonInvalidRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := a.store(t).Read(t.Context(), []provider.Read{test.read})[0]

			if test.code != codes.OK {
				if typed := provider.AsError(got.Err); got.Err == nil || typed.Code != test.code || typed.Reason != test.reason {
					t.Errorf("%s: %v", test.why, got.Err)
				}

				return
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func TestPushOwnership(t *testing.T) {
	controller := true

	for _, test := range []struct {
		name, why string
		meta      metav1.ObjectMeta
		push      provider.Push
		code      codes.Code
		writes    int
	}{
		{"another owner", "", metav1.ObjectMeta{Annotations: map[string]string{ownerAnnotation: "you"}}, provider.Push{Adopt: true}, codes.FailedPrecondition, 0},
		{"no owner", "created manually", metav1.ObjectMeta{}, provider.Push{}, codes.FailedPrecondition, 0},
		{"no owner, adopted", "", metav1.ObjectMeta{}, provider.Push{Adopt: true}, codes.OK, 1},
		{
			"an object of the cluster", "its controller writes it back", metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ExternalSecret", Name: "x", Controller: &controller}}},
			provider.Push{Adopt: true}, codes.FailedPrecondition, 0,
		},
		{"ESO v1", "it marks with a label", metav1.ObjectMeta{Labels: map[string]string{ownership.ManagedTag: ownership.ManagedValue}}, provider.Push{}, codes.OK, 1},
		{"itself, and the value is equal", "each write causes an event for all watches", metav1.ObjectMeta{Labels: map[string]string{ownership.ManagedTag: ownership.ManagedValue}, Annotations: map[string]string{ownerAnnotation: "me"}}, provider.Push{Value: []byte("v")}, codes.OK, 0},
		{"any owner, and it must not be replaced", "", metav1.ObjectMeta{Annotations: map[string]string{ownerAnnotation: "you"}}, provider.Push{IfNotExists: true}, codes.OK, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAPIServer(t)
			test.meta.Name = "db"
			a.holds(&corev1.Secret{ObjectMeta: test.meta, Data: map[string][]byte{"p": []byte("v")}})
			a.on("PUT secrets/db", func(w http.ResponseWriter, r *http.Request) {
				_ = json.NewEncoder(w).Encode(sent(t, r))
			})

			test.push.Key, test.push.Property, test.push.Owner = "db", "p", "me"

			_, err := a.store(t).Push(t.Context(), test.push)
			if test.code == codes.OK && err != nil || test.code != codes.OK && (err == nil || provider.AsError(err).Reason != pb.ReasonNotOwned) {
				t.Errorf("%s: %v", test.why, err)
			}

			if len(a.writes) != test.writes {
				t.Errorf("%s: writes %v", test.why, a.writes)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy string
		want   map[string]string
	}{
		{"replaced", "", map[string]string{"b": "2", ownership.ManagedTag: ownership.ManagedValue}},
		{"merged", "Merge", map[string]string{"a": "1", "b": "2", ownership.ManagedTag: ownership.ManagedValue}},
		{"ignored", "Ignore", map[string]string{"a": "1", ownership.ManagedTag: ownership.ManagedValue}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAPIServer(t)
			a.holds(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: map[string]string{"a": "1", ownership.ManagedTag: ownership.ManagedValue}}})

			written := &corev1.Secret{}

			a.on("PUT secrets/db", func(w http.ResponseWriter, r *http.Request) {
				written = sent(t, r)
				_ = json.NewEncoder(w).Encode(written)
			})

			_, err := a.store(t).Push(t.Context(), provider.Push{
				Key: "db", Property: "p", Value: []byte{0xff}, Owner: "me",
				Settings: fmt.Appendf(nil, `{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":{"targetMergePolicy":%q,"labels":{"b":"2"}}}`, test.policy),
			})
			if diff := cmp.Diff(test.want, written.Labels); err != nil || diff != "" {
				t.Errorf("labels (-want +got): %v\n%s", err, diff)
			}
		})
	}

	for why, settings := range map[string]string{
		"an unknown policy":       `{"targetMergePolicy":"Keep"}`,
		"a token of Kubernetes'":  `{"type":"kubernetes.io/service-account-token"}`,
		"a namespace that is one": `{"remoteNamespace":"../kube-system"}`,
	} {
		_, err := newAPIServer(t).store(t).Push(t.Context(), provider.Push{
			Key: "db", Property: "p", Owner: "me",
			Settings: []byte(`{"apiVersion":"kubernetes.external-secrets.io/v1alpha1","kind":"PushSecretMetadata","spec":` + settings + `}`),
		})
		if err == nil || provider.AsError(err).Code != codes.InvalidArgument {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// A concurrent write of another client is not overwritten.
func TestPushConflicts(t *testing.T) {
	a := newAPIServer(t)
	a.holds(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{ownerAnnotation: "me"}}})

	conflicts := 2

	a.on("PUT secrets/db", func(w http.ResponseWriter, r *http.Request) {
		if conflicts--; conflicts >= 0 {
			status(w, http.StatusConflict, metav1.StatusReasonConflict, "db")

			return
		}

		_ = json.NewEncoder(w).Encode(sent(t, r))
	})

	pushed, err := a.store(t).Push(t.Context(), provider.Push{Key: "db", Property: "p", Value: []byte("v"), Owner: "me"})
	if err != nil || !pushed.Changed {
		t.Errorf("after two conflicts: %+v, %v", pushed, err)
	}
}

// A watch resumes at its last resource version; if that has expired, it reports that
// changes may have been missed.
func TestWatch(t *testing.T) {
	a := newAPIServer(t)
	lists, rounds := 0, 0

	a.on("GET secrets", func(w http.ResponseWriter, _ *http.Request) {
		lists++
		_ = json.NewEncoder(w).Encode(metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(100 * lists)},
		})
	})

	var from []string

	event := func(w http.ResponseWriter, kind, name, version string) {
		fmt.Fprintf(w, `{"type":%q,"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"resourceVersion":%q}}}`+"\n", kind, name, version)
		_ = http.NewResponseController(w).Flush()
	}

	a.on("WATCH", func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.URL.Query().Get("resourceVersion"))

		switch rounds++; rounds {
		case 1:
			event(w, "MODIFIED", "db", "101")
			event(w, "MODIFIED", "other", "102")
			event(w, "BOOKMARK", "", "103")
		case 2: // it ends at once and is resumed
		case 3:
			fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
		default:
			event(w, "DELETED", "db", "201")
			<-r.Context().Done()
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	var told []provider.Change

	watching := a.store(t)
	watching.patience = time.Millisecond

	err := watching.Watch(ctx, []string{"db", "cache"}, func(change provider.Change) error {
		if told = append(told, change); len(told) == 4 {
			cancel()
		}

		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}

	want := []provider.Change{{}, {Keys: []string{"db"}}, {Resync: true}, {Keys: []string{"db"}}}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff([]string{"100", "103", "103", "200"}, from); diff != "" {
		t.Errorf("watched from (-want +got):\n%s", diff)
	}
}

func TestWatchIsRefused(t *testing.T) {
	a := newAPIServer(t)
	a.on("GET secrets", func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "")
	})

	err := a.store(t).Watch(t.Context(), nil, func(provider.Change) error { return nil })
	if err == nil || provider.AsError(err).Code != codes.PermissionDenied {
		t.Errorf("a login that may not list: %v", err)
	}
}

// If a gateway ends each watch at once, the number of attempts is bounded.
func TestWatchesThatEndAtOnce(t *testing.T) {
	for why, answer := range map[string]string{
		"in good order": "", "for an expired version": `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`,
	} {
		a := newAPIServer(t)
		rounds := 0

		a.on("GET secrets", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"}}`)
		})
		a.on("WATCH", func(w http.ResponseWriter, _ *http.Request) {
			rounds++

			_, _ = io.WriteString(w, answer)
		})

		s := a.store(t)
		s.patience = time.Millisecond

		if err := s.Watch(t.Context(), nil, func(provider.Change) error { return nil }); err == nil || rounds > maxFailures+1 {
			t.Errorf("%s: %d rounds, %v", why, rounds, err)
		}
	}
}

// A concurrent creation by another push is no failure of the store.
func TestPushesThatMeet(t *testing.T) {
	a := newAPIServer(t)
	a.on("POST secrets", func(w http.ResponseWriter, _ *http.Request) {
		a.holds(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{ownerAnnotation: "me"}}, Data: map[string][]byte{"other": []byte("v")}})
		status(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, "db")
	})
	a.on("PUT secrets/db", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(sent(t, r))
	})

	pushed, err := a.store(t).Push(t.Context(), provider.Push{Key: "db", Property: "p", Value: []byte("v"), Owner: "me"})
	if err != nil || !pushed.Changed {
		t.Errorf("%+v, %v", pushed, err)
	}
}

// Only a Secret is ever said to be absent.
func TestWritesAreNeverNotFound(t *testing.T) {
	a := newAPIServer(t)
	a.on("POST secrets", func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "default")
	})

	_, err := a.store(t).Push(t.Context(), provider.Push{Key: "db", Property: "p", Value: []byte("v"), Owner: "me"})
	if err == nil || provider.AsError(err).Code != codes.FailedPrecondition {
		t.Errorf("a push to a namespace that is not there: %v", err)
	}

	// It goes while its property is deleted.
	a.holds(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{ownerAnnotation: "me"}}, Data: map[string][]byte{"p": nil, "q": nil}})
	a.on("PUT secrets/db", func(w http.ResponseWriter, _ *http.Request) {
		a.on("GET secrets/db", nil)
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "db")
	})

	if changed, err := a.store(t).Delete(t.Context(), provider.Deletion{Key: "db", Property: "p", Owner: "me"}); err != nil || changed {
		t.Errorf("a delete of an absent Secret: %t, %v", changed, err)
	}
}
