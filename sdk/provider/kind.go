package provider

import (
	"context"
	"flag"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/internal/kind"
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
	// names it must not use; nil means none. They are parsed before any store is
	// constructed.
	Flags func(*flag.FlagSet)
}

// Environment is what a store or generator is constructed with besides its
// config.
type Environment struct {
	// References resolves the config's references to credentials, in the
	// constructor and later. When a value that it has resolved changes, the SDK
	// constructs a new store and closes this one.
	References References
	// Retry settings of the store object.
	Retry Retry
	// OwnIdentity reports whether the config may log in as the provider process
	// itself, such as with its Pod's ServiceAccount or a cloud's instance role.
	// It is allowed by namespace, with a flag of the process: every user of such a
	// config gets the rights of the process.
	OwnIdentity bool
	// APIServer is the one from which the provider reads its configs.
	APIServer APIServer
	// Calls counts the calls of the backend; nil counts nothing. The transport of
	// package backend uses it.
	Calls Calls
}

// APIServer is the address of a Kubernetes API server. It holds no credential.
type APIServer struct {
	// URL of the server; empty where there is none, as in tests.
	URL string
	// CABundle is the PEM bundle that its certificate chains to; empty means the
	// system's authorities.
	CABundle []byte
}

// Calls counts calls of a backend. Safe for concurrent use.
type Calls interface {
	// Called counts one call: the operation in the backend's own terms, with few
	// distinct values, such as "GetSecretValue"; the backend's code, such as
	// "200", or "error" where there was no response; and the duration.
	Called(operation, code string, took time.Duration)
}

// Retry settings for calls of the backend.
type Retry struct {
	// MaxRetries after the first try; nil means the provider's own default.
	MaxRetries *int
	// Interval before the first retry; 0 means the provider's own default.
	Interval time.Duration
}

// Kind is one kind of provider config and the constructor of what it configures.
// StoreKind and GeneratorKind return one.
type Kind struct{ definition kind.Definition[Environment] }

// Definition of the kind, for the packages of the SDK.
func (k Kind) Definition() kind.Definition[Environment] { return k.definition }

// StoreKind registers the kind of config C, whose type addToScheme adds to a
// scheme, and the constructor of its stores. The constructor checks the config,
// resolves its references and may log in; its errors are those of this package.
// The capabilities of the kind are the interfaces that S implements.
//
// It panics when addToScheme does not add C: that is a defect of the program,
// and shows when it is first started.
func StoreKind[C any, P interface {
	*C
	client.Object
}, S Store](addToScheme func(*runtime.Scheme) error, newStore func(context.Context, Environment, P) (S, error)) Kind {
	var store S

	return newKind[C, P](pb.Service_SERVICE_SECRET_STORE, storeCapabilities(store), addToScheme, newStore)
}

// GeneratorKind registers the kind of config C and the constructor of its
// generators, as StoreKind does for stores. The kind has the capability Generate,
// and Cleanup where G implements Cleaner.
func GeneratorKind[C any, P interface {
	*C
	client.Object
}, G Generator](addToScheme func(*runtime.Scheme) error, newGenerator func(context.Context, Environment, P) (G, error)) Kind {
	var generator G

	capabilities := []pb.Capability{pb.Capability_CAPABILITY_GENERATE}
	if _, cleans := any(generator).(Cleaner); cleans {
		capabilities = append(capabilities, pb.Capability_CAPABILITY_CLEANUP)
	}

	return newKind[C, P](pb.Service_SERVICE_GENERATOR, capabilities, addToScheme, newGenerator)
}

func newKind[C any, P interface {
	*C
	client.Object
}, I kind.Instance](service pb.Service, capabilities []pb.Capability, addToScheme func(*runtime.Scheme) error, construct func(context.Context, Environment, P) (I, error)) Kind {
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		panic(fmt.Sprintf("cannot register a kind: %v", err))
	}

	gvk, err := apiutil.GVKForObject(P(new(C)), scheme)
	if err != nil {
		panic(fmt.Sprintf("cannot register a kind: %v", err))
	}

	return Kind{kind.Definition[Environment]{
		GroupVersionKind: gvk,
		Service:          service,
		Capabilities:     capabilities,
		AddToScheme:      addToScheme,
		NewConfig:        func() client.Object { return P(new(C)) },
		New: func(ctx context.Context, env Environment, config client.Object) (kind.Instance, error) {
			typed, ok := config.(P)
			if !ok {
				return nil, fmt.Errorf("cannot use a %T as a config of kind %s", config, gvk.Kind)
			}

			return construct(ctx, env, typed)
		},
	}}
}

// storeCapabilities returns the capabilities of the interfaces that a store's type
// implements.
func storeCapabilities(store any) []pb.Capability {
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
