// Package buildcache builds the programs that tests run beside themselves (a
// Kubernetes control plane, a Vault server) from Go modules nested in this
// repository, once per machine, and keeps them in the user's cache folder.
//
// Such a module pins hundreds of others that must not enter the repository's
// workspace; it is therefore never imported and never part of go.work. The
// first build needs the Go module proxy and some minutes; after it nothing
// here touches the network.
//
// The package never changes anything in the repository, never hands out a
// folder that is not complete, and never removes what it built: to free the
// space, remove the folder external-secrets/assets in the user's cache folder.
package buildcache
