// Package store reads secrets of Vault's key/value engines, versions 1 and 2.
// A login is shared by all reads of a store, renewed before it ends and
// revoked when the store is closed.
package store
