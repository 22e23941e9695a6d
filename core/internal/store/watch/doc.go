// Package watch watches stores whose backends tell of changes, and keeps which
// ExternalSecrets were told of. It never reads a secret: a notice only makes a
// sync come earlier.
package watch
