// Package document answers reads out of a secret that is a JSON text: the
// whole, a property, or every key. All providers select properties by it, so
// that an ExternalSecret means the same with each of them.
package document
