// Package resource reads objects of any kind but Secrets: those of an
// allow-list, and of them the fields that it names.
package resource
