// Package peer lets callers at a unix socket in by the user that they run as,
// which the kernel tells.
package peer
