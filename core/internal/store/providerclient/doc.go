// Package providerclient calls providers over the provider protocol. It keeps
// one pooled connection per address and TLS identity, sets deadlines, repeats
// what is safe, bounds what is in flight, and trusts no answer: ids, shapes,
// codes and sizes are checked before anything else sees them.
package providerclient
