// Package document reads and writes properties of secrets that are JSON texts. All
// providers use it, so that an ExternalSecret selects the same with each of them.
package document
