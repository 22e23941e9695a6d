// Package history asks git what happened to a folder since a tag. It never
// changes the repository.
package history
