// Package offline offers the operator's own decisions without the operator: the
// plan of an ExternalSecret, the target that comes of given values, when the
// next refresh is, and what keeps a store from being read. What a tool shows
// with it is what the operator does, because the code is the same.
//
// It is for the tools of this repository. Its API is not stable: it changes
// with the operator. It must never write anything, call a provider, or read a
// Secret.
package offline
