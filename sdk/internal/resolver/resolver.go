package resolver

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"google.golang.org/grpc/codes"

	metav1alpha1 "github.com/external-secrets/eso/api/meta/v1alpha1"
	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

// tokenSeconds is the lifetime of a requested ServiceAccount token: the minimum
// of Kubernetes.
const tokenSeconds = 600

// Resolver resolves references in one namespace and records the values that it
// read, so that it can detect changes. It implements provider.References.
type Resolver struct {
	client    client.Client
	namespace string

	mu   sync.Mutex
	seen map[reference]digest
}

var _ provider.References = (*Resolver)(nil)

// reference is one value that was read.
type reference struct{ kind, name, key string }

// digest reports whether a value has changed without keeping it.
type digest [sha256.Size]byte

// New returns a resolver for one namespace. Without a namespace every reference
// is denied.
func New(c client.Client, namespace string) *Resolver {
	return &Resolver{client: c, namespace: namespace, seen: map[reference]digest{}}
}

// Namespace in which references resolve.
func (r *Resolver) Namespace() string { return r.namespace }

// SecretKey returns the value of one key of a Secret.
func (r *Resolver) SecretKey(ctx context.Context, ref metav1alpha1.SecretKeySelector) ([]byte, error) {
	return r.read(ctx, reference{kind: "Secret", name: ref.Name, key: ref.Key})
}

// CABundle returns the PEM bundle that a source names.
func (r *Resolver) CABundle(ctx context.Context, source metav1alpha1.CASource) ([]byte, error) {
	switch {
	case source.SecretRef != nil && source.ConfigMapRef != nil:
		return nil, provider.InvalidConfig("set one of secretRef and configMapRef of the CA source, not both")
	case source.SecretRef != nil:
		return r.SecretKey(ctx, *source.SecretRef)
	case source.ConfigMapRef != nil:
		return r.read(ctx, reference{kind: "ConfigMap", name: source.ConfigMapRef.Name, key: source.ConfigMapRef.Key})
	default:
		return nil, provider.InvalidConfig("set secretRef or configMapRef of the CA source")
	}
}

// ServiceAccountToken requests a token that expires after ten minutes.
func (r *Resolver) ServiceAccountToken(ctx context.Context, ref metav1alpha1.ServiceAccountSelector, audiences ...string) (string, error) {
	if err := r.allowed("ServiceAccount", ref.Name); err != nil {
		return "", err
	}

	if len(ref.Audiences) > 0 {
		audiences = ref.Audiences
	}

	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: ref.Name}}

	if err := r.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", r.failed("request a token of ServiceAccount", ref.Name, err)
	}

	return request.Status.Token, nil
}

// Changed reports whether any value that was read has changed. A value that
// cannot be read any more has changed; a failure of the API server is no change.
func (r *Resolver) Changed(ctx context.Context) bool {
	r.mu.Lock()
	seen := maps.Clone(r.seen)
	r.mu.Unlock()

	for ref, was := range seen {
		value, err := r.value(ctx, ref)

		switch {
		case err == nil:
			if sha256.Sum256(value) != was {
				return true
			}
		case provider.AsError(err).Code == codes.FailedPrecondition:
			return true
		}
	}

	return false
}

func (r *Resolver) read(ctx context.Context, ref reference) ([]byte, error) {
	value, err := r.value(ctx, ref)
	if err != nil {
		return nil, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.seen[ref] = sha256.Sum256(value)

	return value, nil
}

func (r *Resolver) value(ctx context.Context, ref reference) ([]byte, error) {
	if err := r.allowed(ref.kind, ref.name); err != nil {
		return nil, err
	}

	name := client.ObjectKey{Namespace: r.namespace, Name: ref.name}

	var (
		value []byte
		found bool
	)

	switch ref.kind {
	case "Secret":
		var secret corev1.Secret
		if err := r.client.Get(ctx, name, &secret); err != nil {
			return nil, r.failed("read Secret", ref.name, err)
		}

		value, found = secret.Data[ref.key]
	case "ConfigMap":
		var configMap corev1.ConfigMap
		if err := r.client.Get(ctx, name, &configMap); err != nil {
			return nil, r.failed("read ConfigMap", ref.name, err)
		}

		if value, found = configMap.BinaryData[ref.key]; !found {
			var text string
			text, found = configMap.Data[ref.key]
			value = []byte(text)
		}
	}

	if !found {
		return nil, notFound("%s %q in namespace %q has no key %q", ref.kind, ref.name, r.namespace, ref.key)
	}

	return value, nil
}

// allowed denies references if there is no authentication namespace.
func (r *Resolver) allowed(kind, name string) error {
	switch {
	case r.namespace == "":
		return denied("cannot resolve %s %q: the call has no authentication namespace", kind, name)
	case name == "":
		return provider.InvalidConfig("a reference to a %s has no name", kind)
	default:
		return nil
	}
}

func (r *Resolver) failed(what, name string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return notFound("cannot %s %q in namespace %q: it does not exist", what, name, r.namespace)
	case apierrors.IsForbidden(err):
		return denied("cannot %s %q in namespace %q: the provider's ServiceAccount may not", what, name, r.namespace)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return provider.InvalidConfig("cannot %s %q in namespace %q: %v", what, name, r.namespace, err)
	default:
		return &provider.Error{
			Code: codes.Unavailable, Reason: pb.ReasonUnavailable, StoreScope: true,
			Message: "cannot " + what + " \"" + name + "\" in namespace \"" + r.namespace + "\": the API server did not answer: " + err.Error(),
		}
	}
}

func denied(format string, args ...any) error {
	e := provider.InvalidConfig(format, args...)
	e.Reason = pb.ReasonReferenceDenied

	return e
}

func notFound(format string, args ...any) error {
	e := provider.InvalidConfig(format, args...)
	e.Reason = pb.ReasonReferenceNotFound

	return e
}
