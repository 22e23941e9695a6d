package operator

import (
	"context"
	"flag"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/external-secrets/eso/core/generator"
	"github.com/external-secrets/eso/core/store"
)

// Extension adds kinds, controllers and flags to the operator. Every field may
// be left out.
type Extension struct {
	// AddToScheme registers types with the scheme of the operator's clients and
	// caches.
	AddToScheme func(*runtime.Scheme) error

	// Stores constructs resolvers by the apiVersion of the references that they
	// resolve. Two extensions must not have the same apiVersion.
	Stores map[string]func(Environment) (store.Resolver, error)

	// Generators constructs resolvers by the apiVersion of the references in
	// dataFrom[].sourceRef.generatorRef. Two extensions must not have the same
	// apiVersion.
	Generators map[string]func(Environment) (generator.Resolver, error)

	// Controllers adds controllers to the manager, after the operator's own.
	Controllers func(ctx context.Context, mgr manager.Manager) error

	// Flags adds flags to those of the operator. They are parsed before any other
	// function is called. A name that the operator uses panics.
	Flags func(*flag.FlagSet)
}

// Environment is what resolvers are constructed with.
type Environment struct {
	// Manager of the operator. It has not been started: informers and indexes
	// may be added.
	Manager manager.Manager
	// Reader reads from the manager's cache. Reads of a kind that is not watched
	// fail: a Dependency of a store.Resolver is watched, any other kind needs an
	// informer.
	Reader client.Reader
	// Recovered syncs again what refers to a store. A resolver calls it when a
	// store that failed answers again and no watch reports it. It does not
	// block.
	Recovered func(store.Selector)
}

// resolvers constructs the resolvers of all extensions.
func resolvers(environment Environment, extensions []Extension) (store.Resolvers, generator.Resolvers, error) {
	stores, generators := store.Resolvers{}, generator.Resolvers{}

	for _, extension := range extensions {
		if err := construct(environment, stores, extension.Stores); err != nil {
			return nil, nil, fmt.Errorf("cannot serve stores: %w", err)
		}

		if err := construct(environment, generators, extension.Generators); err != nil {
			return nil, nil, fmt.Errorf("cannot serve generators: %w", err)
		}
	}

	return stores, generators, nil
}

func construct[R any](environment Environment, into map[string]R, constructors map[string]func(Environment) (R, error)) error {
	for apiVersion, create := range constructors {
		if _, twice := into[apiVersion]; twice {
			return fmt.Errorf("two extensions serve %s", apiVersion)
		}

		resolver, err := create(environment)
		if err != nil {
			return fmt.Errorf("%s: %w", apiVersion, err)
		}

		into[apiVersion] = resolver
	}

	return nil
}
