// Package tags reads and writes the tags of secrets and parameters, the marks of
// owners among them. It does no I/O.
package tags
