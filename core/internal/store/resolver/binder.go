package resolver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/core/internal/identity/address"
	"github.com/external-secrets/eso/core/internal/identity/token"
	"github.com/external-secrets/eso/core/internal/statustext"
	"github.com/external-secrets/eso/core/internal/store/providerclient"
	"github.com/external-secrets/eso/core/store"
)

// configTimeout bounds the first read of a kind of config, which waits for its
// informer.
const configTimeout = 10 * time.Second

func deny(reason, format string, args ...any) error {
	return &store.DenialError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Binding is what a store is bound to.
type Binding struct {
	// Endpoint of the provider, with the trust that the store has chosen.
	Endpoint providerclient.Endpoint
	// Caller whose token calls carry; none where the store names none.
	Caller token.Identity
	// Provider is the name of the SecretProvider; empty where the operator's
	// flag allows the address and none is registered.
	Provider string
	// Version of the provider's build, as far as it is known.
	Version string
	// Capabilities for the kind of config, as far as they are known.
	Capabilities []string
	// Revision changes with the store, its config and its registration.
	Revision string

	context *pb.CallContext
}

// Call returns the context of a call through the binding, on behalf of an object
// in the source namespace; "" is the store's own validation.
func (b *Binding) Call(sourceNamespace string) *pb.CallContext {
	call := &pb.CallContext{
		RequestId:               providerclient.NewRequestID(),
		Store:                   b.context.GetStore(),
		Config:                  b.context.GetConfig(),
		Retry:                   b.context.GetRetry(),
		SourceNamespace:         sourceNamespace,
		AuthenticationNamespace: b.context.GetAuthenticationNamespace(),
	}

	// Without one yet, credentials resolve where the call comes from.
	if call.GetAuthenticationNamespace() == "" {
		call.AuthenticationNamespace = sourceNamespace
	}

	return call
}

// Policy is what the operator's flags say of addresses.
type Policy struct {
	// Allowed addresses that need no registration.
	Allowed []address.Address
	// SocketDir is the folder below which unix sockets may lie; empty means
	// that none may be used.
	SocketDir string
	// SocketUID is the user that a provider behind a unix socket must run as.
	SocketUID int
	// SPIFFE says that the operator has a Workload API.
	SPIFFE bool
	// Namespace of the operator.
	Namespace string
}

// Configs ensures that a kind of provider config is watched, so that reads
// of its metadata come from a cache.
type Configs interface {
	Watch(ctx context.Context, gvk schema.GroupVersionKind) error
}

// Binder binds stores to providers.
type Binder struct {
	reader        client.Reader
	registrations Registrations
	configs       Configs
	policy        Policy
}

// NewBinder returns a Binder that reads from a cache.
func NewBinder(reader client.Reader, registrations Registrations, configs Configs, policy Policy) *Binder {
	return &Binder{reader: reader, registrations: registrations, configs: configs, policy: policy}
}

// Bind decides what a store is bound to. What forbids it is a *store.DenialError.
func (r *Binder) Bind(ctx context.Context, s *Store) (*Binding, error) {
	namespace, err := configNamespace(s)
	if err != nil {
		return nil, err
	}

	gvk, err := configKind(s)
	if err != nil {
		return nil, err
	}

	b, registration, err := r.provider(ctx, s, gvk, namespace)
	if err != nil {
		return nil, err
	}

	if err := r.authenticate(s, b, registration, namespace); err != nil {
		return nil, err
	}

	config, err := r.config(ctx, gvk, client.ObjectKey{Namespace: namespace, Name: s.Spec.ProviderConfig.ProviderRef.Name})
	if err != nil {
		return nil, err
	}

	b.context = callContext(s, gvk, config)
	b.Revision = revision(s.Object, config, registration)

	return b, nil
}

// Admit reports whether a store serves a namespace; nil where it does.
func (r *Binder) Admit(ctx context.Context, s *Store, namespace string) error {
	if s.Kind == v2alpha1.SecretStoreKind {
		if own := s.Object.GetNamespace(); own != namespace {
			return deny(v2alpha1.ReasonInvalidProviderConfig, "%s serves its own namespace only", s.Key())
		}

		return nil
	}

	if len(s.Conditions) == 0 {
		return nil
	}

	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})

	if err := r.reader.Get(ctx, client.ObjectKey{Name: namespace}, object, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("cannot read namespace %q: %w", namespace, err)
	}

	admitted, err := Admits(s.Conditions, namespace, object.Labels)
	if err != nil {
		return deny(v2alpha1.ReasonInvalidProviderConfig, "%s: %v", s.Key(), err)
	}

	if !admitted {
		return deny(v2alpha1.ReasonInvalidProviderConfig, "the conditions of %s do not admit namespace %q", s.Key(), namespace)
	}

	return nil
}

func configNamespace(s *Store) (string, error) {
	named := s.Spec.ProviderConfig.ProviderRef.Namespace

	if s.Kind == v2alpha1.ClusterSecretStoreKind {
		if named == "" {
			return "", deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.providerRef.namespace is required in a ClusterSecretStore")
		}

		return named, nil
	}

	own := s.Object.GetNamespace()
	if named != "" && named != own {
		return "", deny(v2alpha1.ReasonInvalidProviderConfig,
			"spec.providerConfig.providerRef.namespace is %q: a SecretStore uses provider configs of its own namespace %q only; leave the field out, or use a ClusterSecretStore", named, own)
	}

	return own, nil
}

func configKind(s *Store) (schema.GroupVersionKind, error) {
	ref := s.Spec.ProviderConfig.ProviderRef

	apiVersion := ref.APIVersion
	if apiVersion == "" {
		apiVersion = v2alpha1.DefaultConfigAPIVersion
	}

	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Group == "" {
		return schema.GroupVersionKind{}, deny(v2alpha1.ReasonInvalidProviderConfig,
			"spec.providerConfig.providerRef.apiVersion %q is not of the form group/version, such as %s", apiVersion, v2alpha1.DefaultConfigAPIVersion)
	}

	return gv.WithKind(ref.Kind), nil
}

// provider finds the registration that serves the store, or the flag that
// allows its address.
func (r *Binder) provider(ctx context.Context, s *Store, gvk schema.GroupVersionKind, namespace string) (*Binding, *v2alpha1.SecretProvider, error) {
	given := s.Spec.ProviderConfig.Address
	if given == "" {
		registrations, err := r.registrations.Serving(ctx, gvk)
		if err != nil {
			return nil, nil, err
		}

		registration, err := serving(registrations, gvk, namespace)
		if err != nil {
			return nil, nil, err
		}

		b, err := r.registered(registration, gvk)

		return b, registration, err
	}

	wanted, err := address.Parse(given)
	if err != nil {
		return nil, nil, deny(v2alpha1.ReasonInvalidProviderConfig, "spec.providerConfig.address: %v", err)
	}

	registrations, err := r.registrations.At(ctx, wanted)
	if err != nil {
		return nil, nil, err
	}

	registration, forbidden := at(registrations, wanted, namespace)
	if registration != nil {
		if err := serves(registration, gvk); err != nil {
			return nil, nil, err
		}

		b, err := r.registered(registration, gvk)

		return b, registration, err
	}

	// A registration's own word comes before the flag.
	if forbidden == "" && slices.Contains(r.policy.Allowed, wanted) {
		if err := r.socket(wanted); err != nil {
			return nil, nil, err
		}

		return &Binding{Endpoint: r.policy.Unregistered(wanted)}, nil, nil
	}

	if forbidden != "" {
		return nil, nil, deny(v2alpha1.ReasonProviderNotRegistered,
			"spec.providerConfig.address %q belongs to SecretProvider %q, whose allowedNamespaces leave out namespace %q; nothing was dialled", given, forbidden, namespace)
	}

	return nil, nil, deny(v2alpha1.ReasonProviderNotRegistered,
		"spec.providerConfig.address %q is not that of any SecretProvider, and the operator's --allow-provider-address does not list it; nothing was dialled", given)
}

// serving finds the one registration that serves a kind to a namespace.
func serving(registrations []v2alpha1.SecretProvider, gvk schema.GroupVersionKind, namespace string) (*v2alpha1.SecretProvider, error) {
	var (
		found     []*v2alpha1.SecretProvider
		forbidden []string
	)

	for i := range registrations {
		registration := &registrations[i]
		if _, ok := kindOf(registration, gvk); !ok || registration.DeletionTimestamp != nil {
			continue
		}

		if allows(registration, namespace) {
			found = append(found, registration)
		} else {
			forbidden = append(forbidden, registration.Name)
		}
	}

	// The kinds in a registration have precedence over those that providers report.
	listed := slices.DeleteFunc(slices.Clone(found), func(r *v2alpha1.SecretProvider) bool {
		return !slices.ContainsFunc(r.Spec.Kinds, func(k v2alpha1.ProviderKind) bool {
			return k.Kind == gvk.Kind && k.Version() == gvk.GroupVersion().String()
		})
	})
	if len(listed) > 0 {
		found = listed
	}

	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		names := make([]string, 0, len(found))
		for _, registration := range found {
			names = append(names, registration.Name)
		}

		slices.Sort(names)

		return nil, deny(v2alpha1.ReasonProviderNotRegistered,
			"the SecretProviders %s all serve %s of %s: set spec.providerConfig.address to that of one", strings.Join(names, ", "), gvk.Kind, gvk.GroupVersion())
	case len(forbidden) > 0:
		slices.Sort(forbidden)

		return nil, deny(v2alpha1.ReasonProviderNotRegistered,
			"%s of %s is served by SecretProvider %s, whose allowedNamespaces leave out namespace %q", gvk.Kind, gvk.GroupVersion(), strings.Join(forbidden, ", "), namespace)
	default:
		return nil, deny(v2alpha1.ReasonProviderNotRegistered,
			"no SecretProvider serves %s of %s: install its provider's chart, or see 'kubectl get secretproviders' for one that is not Ready", gvk.Kind, gvk.GroupVersion())
	}
}

// at finds a registration by address, and the name of one whose
// allowedNamespaces forbid it.
func at(registrations []v2alpha1.SecretProvider, wanted address.Address, namespace string) (registration *v2alpha1.SecretProvider, forbidden string) {
	for i := range registrations {
		candidate := &registrations[i]

		parsed, err := address.Parse(candidate.Spec.Address)
		if err != nil || parsed != wanted || candidate.DeletionTimestamp != nil {
			continue
		}

		if allows(candidate, namespace) {
			return candidate, ""
		}

		forbidden = candidate.Name
	}

	return nil, forbidden
}

func allows(registration *v2alpha1.SecretProvider, namespace string) bool {
	return len(registration.Spec.AllowedNamespaces) == 0 || slices.Contains(registration.Spec.AllowedNamespaces, namespace)
}

func kindOf(registration *v2alpha1.SecretProvider, gvk schema.GroupVersionKind) (v2alpha1.ServedKind, bool) {
	for _, kind := range registration.Status.Kinds {
		if kind.APIVersion == gvk.GroupVersion().String() && kind.Kind == gvk.Kind {
			return kind, true
		}
	}

	return v2alpha1.ServedKind{}, false
}

// serves says why a registration that was named by its address does not serve
// a kind.
func serves(registration *v2alpha1.SecretProvider, gvk schema.GroupVersionKind) error {
	if _, ok := kindOf(registration, gvk); ok {
		return nil
	}

	if len(registration.Status.Kinds) == 0 {
		return deny(v2alpha1.ReasonProviderUnavailable, "SecretProvider %q has not said yet what it serves%s", registration.Name, because(registration))
	}

	kinds := make([]string, 0, len(registration.Status.Kinds))
	for _, kind := range registration.Status.Kinds {
		kinds = append(kinds, kind.Kind+" of "+kind.APIVersion)
	}

	return deny(v2alpha1.ReasonProviderNotRegistered, "SecretProvider %q serves %s, not %s of %s",
		registration.Name, strings.Join(kinds, ", "), gvk.Kind, gvk.GroupVersion())
}

func because(registration *v2alpha1.SecretProvider) string {
	ready := meta.FindStatusCondition(registration.Status.Conditions, v2alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return ""
	}

	return fmt.Sprintf(" (%s: %s)", ready.Reason, statustext.Stable(ready.Message))
}

// registered returns the binding of a registration.
func (r *Binder) registered(registration *v2alpha1.SecretProvider, gvk schema.GroupVersionKind) (*Binding, error) {
	if ready := meta.FindStatusCondition(registration.Status.Conditions, v2alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
		switch ready.Reason {
		// Whether these have passed is known only by asking; the others end
		// with a change of the registration or of the provider's build.
		case v2alpha1.ReasonUnreachable, v2alpha1.ReasonUntrusted, v2alpha1.ReasonFailing, v2alpha1.ReasonCertificateFailed:
		default:
			return nil, deny(v2alpha1.ReasonProviderUnavailable, "SecretProvider %q is not Ready%s", registration.Name, because(registration))
		}
	}

	endpoint, err := r.Endpoint(registration)
	if err != nil {
		return nil, err
	}

	kind, _ := kindOf(registration, gvk)

	return &Binding{
		Endpoint: endpoint, Provider: registration.Name, Version: registration.Status.Version, Capabilities: slices.Clone(kind.Capabilities),
	}, nil
}

// Endpoint of a registration. What forbids it is a *store.DenialError.
func (r *Binder) Endpoint(registration *v2alpha1.SecretProvider) (providerclient.Endpoint, error) {
	parsed, err := address.Parse(registration.Spec.Address)
	if err != nil {
		return providerclient.Endpoint{}, deny(v2alpha1.ReasonInvalidRegistration, "spec.address: %v", err)
	}

	if err := r.socket(parsed); err != nil {
		return providerclient.Endpoint{}, err
	}

	endpoint := providerclient.Endpoint{Provider: registration.Name, Address: parsed}

	if endpoint.Trust, err = r.policy.trust(registration, parsed); err != nil {
		return providerclient.Endpoint{}, err
	}

	if limits := registration.Spec.Limits; limits != nil {
		if limits.MaxConcurrentRequests != nil {
			endpoint.MaxConcurrent = int(*limits.MaxConcurrentRequests)
		}

		if limits.RequestsPerSecond != nil {
			endpoint.PerSecond = int(*limits.RequestsPerSecond)
		}
	}

	return endpoint, nil
}

func (r *Binder) socket(a address.Address) error {
	switch {
	case !a.Socket(), r.policy.SocketDir != "" && a.Within(r.policy.SocketDir):
		return nil
	case r.policy.SocketDir == "":
		return deny(v2alpha1.ReasonProviderNotRegistered, "address %s is a unix socket, and the operator's --provider-socket-dir is not set; nothing was dialled", a)
	default:
		return deny(v2alpha1.ReasonProviderNotRegistered, "address %s is a unix socket outside the operator's --provider-socket-dir; nothing was dialled", a)
	}
}

// config reads the config's metadata from the cache.
func (r *Binder) config(ctx context.Context, gvk schema.GroupVersionKind, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()

	if err := r.configs.Watch(ctx, gvk); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, &store.DenialError{
				Reason: v2alpha1.ReasonInvalidProviderConfig, Retry: true,
				Message: fmt.Sprintf("the cluster has no kind %s of %s: install its provider's chart", gvk.Kind, gvk.GroupVersion()),
			}
		}

		return nil, fmt.Errorf("cannot watch %s of %s: %w", gvk.Kind, gvk.GroupVersion(), err)
	}

	config := &metav1.PartialObjectMetadata{}
	config.SetGroupVersionKind(gvk)

	err := r.reader.Get(ctx, key, config, client.UnsafeDisableDeepCopy)

	switch {
	case apierrors.IsNotFound(err):
		return nil, deny(v2alpha1.ReasonInvalidProviderConfig, "%s %q of %s does not exist in namespace %q", gvk.Kind, key.Name, gvk.GroupVersion(), key.Namespace)
	case err != nil:
		return nil, fmt.Errorf("cannot read %s %q in namespace %q: %w", gvk.Kind, key.Name, key.Namespace, err)
	}

	return config, nil
}

func callContext(s *Store, gvk schema.GroupVersionKind, config *metav1.PartialObjectMetadata) *pb.CallContext {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	call := &pb.CallContext{
		Store: &pb.StoreReference{
			Kind: s.Kind, Namespace: s.Object.GetNamespace(), Name: s.Object.GetName(),
			Uid: string(s.Object.GetUID()), Generation: s.Object.GetGeneration(),
		},
		Config: &pb.ConfigReference{
			ApiVersion: apiVersion, Kind: kind, Namespace: config.Namespace, Name: config.Name,
			Uid: string(config.UID), Generation: config.Generation,
		},
		AuthenticationNamespace: config.Namespace,
	}

	if s.Kind == v2alpha1.ClusterSecretStoreKind && s.Scope == v2alpha1.AuthenticationScopeManifestNamespace {
		call.AuthenticationNamespace = ""
	}

	if retry := s.Spec.RetrySettings; retry != nil {
		call.Retry = &pb.RetrySettings{MaxRetries: retry.MaxRetries}
		if retry.RetryInterval != nil {
			call.Retry.RetryInterval = durationpb.New(retry.RetryInterval.Duration)
		}
	}

	return call
}

func revision(store client.Object, config *metav1.PartialObjectMetadata, registration *v2alpha1.SecretProvider) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d %s %d", store.GetUID(), store.GetGeneration(), config.UID, config.Generation)

	if registration != nil {
		fmt.Fprintf(h, " %s %d", registration.UID, registration.Generation)
	}

	return hex.EncodeToString(h.Sum(nil)[:8])
}
