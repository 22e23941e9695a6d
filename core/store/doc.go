// Package store defines what a kind of store is to the sync engine. A Resolver
// resolves references to stores of one apiVersion; everything that a sync needs
// of a store is in the Snapshot that it returns.
//
// The operator's own kinds, and those that an operator.Extension adds, are
// resolved through the same interface.
package store
