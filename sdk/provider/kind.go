package provider

import (
	"context"
	"flag"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// Provider is a provider process: a name, a version, and the kinds it serves.
type Provider struct {
	// Name of the provider, such as "vault".
	Name string
	// Version of the build, such as "0.3.1".
	Version string
	// Commit of the build.
	Commit string
	// Kinds of config that are served; at least one.
	Kinds []Kind
	// Flags registers the provider's own flags beside those of the SDK, whose
	// names they must not have; nil means none. They are parsed before any store
	// is made.
	Flags func(*flag.FlagSet)
}

// Environment is what a store is made with besides its config.
type Environment struct {
	// References resolves the config's references to credentials, in the
	// constructor and later. When something that it has resolved changes, the
	// SDK makes a new store and closes this one.
	References References
	// Retry settings of the store object.
	Retry Retry
	// OwnIdentity tells whether the config may log in as the provider process
	// itself, such as with its Pod's ServiceAccount or a cloud's instance role.
	// Whoever runs the provider allows that by namespace: what the process may,
	// every user of such a config may.
	OwnIdentity bool
	// APIServer is that of the cluster which the provider reads its configs
	// from.
	APIServer APIServer
	// Calls counts the calls of the backend; nil counts nothing. Package backend
	// has an HTTP transport that does.
	Calls Calls
}

// APIServer says where an API server is. It holds no credential.
type APIServer struct {
	// URL of the server; empty where there is none, as in tests.
	URL string
	// CABundle is the PEM bundle that its certificate chains to; empty means the
	// system's authorities.
	CABundle []byte
}

// Calls counts calls of a backend. Safe for concurrent use.
type Calls interface {
	// Called counts one call: the operation in the backend's own terms, of which
	// there are few, such as "GetSecretValue"; the backend's code, such as
	// "200", or "error" where it did not answer; and how long it took.
	Called(operation, code string, took time.Duration)
}

// Retry settings for calls of the backend.
type Retry struct {
	// MaxRetries after the first try; nil means the provider's own default.
	MaxRetries *int
	// Interval before the first retry; 0 means the provider's own default.
	Interval time.Duration
}

// Kind is one kind of provider config and how a store is made from it. Make it
// with StoreKind.
type Kind struct {
	gvk          schema.GroupVersionKind
	addToScheme  func(*runtime.Scheme) error
	capabilities []pb.Capability
	newConfig    func() client.Object
	newStore     func(context.Context, Environment, client.Object) (Store, error)
}

// StoreKind registers the kind of config C, which addToScheme knows, and the
// constructor of its stores. The constructor checks the config, resolves its
// references and may log in; its errors are those of this package. The
// capabilities are what S implements.
//
// It panics when addToScheme does not know C: that is a defect of the program,
// seen at its first start.
func StoreKind[C any, P interface {
	*C
	client.Object
}, S Store](addToScheme func(*runtime.Scheme) error, newStore func(context.Context, Environment, P) (S, error)) Kind {
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		panic(fmt.Sprintf("cannot register a kind: %v", err))
	}

	gvk, err := apiutil.GVKForObject(P(new(C)), scheme)
	if err != nil {
		panic(fmt.Sprintf("cannot register a kind: %v", err))
	}

	var store S

	return Kind{
		gvk:          gvk,
		addToScheme:  addToScheme,
		capabilities: capabilitiesOf(store),
		newConfig:    func() client.Object { return P(new(C)) },
		newStore: func(ctx context.Context, env Environment, config client.Object) (Store, error) {
			typed, ok := config.(P)
			if !ok {
				return nil, fmt.Errorf("cannot make a store of a %T", config)
			}

			return newStore(ctx, env, typed)
		},
	}
}

// capabilitiesOf a store are the interfaces that its type implements.
func capabilitiesOf(store any) []pb.Capability {
	var capabilities []pb.Capability

	add := func(implemented bool, capability pb.Capability) {
		if implemented {
			capabilities = append(capabilities, capability)
		}
	}

	_, reads := store.(Reader)
	add(reads, pb.Capability_CAPABILITY_READ)

	_, finds := store.(Finder)
	add(finds, pb.Capability_CAPABILITY_FIND)

	_, pushes := store.(Pusher)
	add(pushes, pb.Capability_CAPABILITY_PUSH)

	_, deletes := store.(Deleter)
	add(deletes, pb.Capability_CAPABILITY_DELETE)

	_, checks := store.(Checker)
	add(checks, pb.Capability_CAPABILITY_EXISTS)

	_, watches := store.(Watcher)
	add(watches, pb.Capability_CAPABILITY_WATCH)

	return capabilities
}

// GroupVersionKind of the config.
func (k Kind) GroupVersionKind() schema.GroupVersionKind { return k.gvk }

// AddToScheme adds the config's type to a scheme.
func (k Kind) AddToScheme(scheme *runtime.Scheme) error { return k.addToScheme(scheme) }

// Capabilities of the kind's stores.
func (k Kind) Capabilities() []pb.Capability { return k.capabilities }

// NewConfig gives an empty config object.
func (k Kind) NewConfig() client.Object { return k.newConfig() }

// NewStore makes a store from a config that NewConfig gave.
func (k Kind) NewStore(ctx context.Context, env Environment, config client.Object) (Store, error) {
	return k.newStore(ctx, env, config)
}
