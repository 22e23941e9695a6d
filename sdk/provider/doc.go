// Package provider contains the types with which a provider is written: the
// interfaces of stores and generators, their errors, and the registration of the
// kinds of config.
//
// The main function of a provider lists its kinds:
//
//	func main() {
//		os.Exit(server.Main(provider.Provider{
//			Name:    "example",
//			Version: version,
//			Kinds:   []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, newStore)},
//		}))
//	}
//
// Package server does everything else, from TLS to the caching of backend clients.
// This package does no I/O, and must never import a gRPC server.
package provider
