package kind

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
)

// Instance is a store or a generator that was constructed from a config.
type Instance interface {
	// Close releases what the instance holds. It is called once.
	Close(ctx context.Context) error
}

// Definition of a kind of config, whose instances are constructed with an
// environment of type E.
type Definition[E any] struct {
	GroupVersionKind schema.GroupVersionKind
	// Service that the kind configures.
	Service pb.Service
	// Capabilities of the kind's instances.
	Capabilities []pb.Capability
	// AddToScheme adds the config's type to a scheme.
	AddToScheme func(*runtime.Scheme) error
	// NewConfig returns an empty config object.
	NewConfig func() client.Object
	// New constructs an instance from a config that NewConfig returned.
	New func(context.Context, E, client.Object) (Instance, error)
}
