// Package batch reads many things a batch at a time, and remembers for a while
// that AWS does not allow batches, so that it is not asked again and again for
// what it refuses. It calls nobody itself.
package batch
