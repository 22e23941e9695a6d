// Package resolver decides what a store is bound to: which provider, at which
// address, with which config, and in which namespace credentials resolve. It
// is the one place that makes these decisions. It denies by default, and
// reads caches only: nothing is dialled before a binding exists.
package resolver
