// Package ownership decides whether an owner may write or delete a secret of a
// backend, by the mark that the secret carries. How a mark is stored and read is
// the backend's; what it means is the same for all. The package does no I/O.
package ownership
