// Package kind holds the definition of a kind of provider config: what package
// provider records of a kind and package server needs of it. It does no I/O.
package kind
