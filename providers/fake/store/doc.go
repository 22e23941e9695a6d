// Package store is the fake backend: it answers from the config's own list, and
// remembers what is pushed as long as the process lives.
package store
