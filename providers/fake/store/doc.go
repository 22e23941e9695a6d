// Package store is the fake backend: it answers from the config's own list.
package store
