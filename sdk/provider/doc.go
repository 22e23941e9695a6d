// Package provider is what the author of a provider writes against: the
// interfaces of a store, the errors it answers with, and the registration of
// the kinds of config that it serves.
//
// A provider is a main that lists its kinds:
//
//	func main() {
//		os.Exit(server.Main(provider.Provider{
//			Name:    "example",
//			Version: version,
//			Kinds:   []provider.Kind{provider.StoreKind(v2alpha1.AddToScheme, newStore)},
//		}))
//	}
//
// Everything else, from TLS to the caching of backend clients, is done by
// package server. This package does no I/O and must never know gRPC servers.
package provider
