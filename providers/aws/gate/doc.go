// Package gate remembers for a while that AWS does not allow a call, so that it
// is not asked again and again for what it refuses. It calls nobody.
package gate
