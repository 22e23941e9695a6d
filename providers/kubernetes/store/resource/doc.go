// Package resource reads objects of any kind except Secrets. An allow-list names
// the objects and their fields.
package resource
