// Package peer authorizes callers at a unix socket by the user that they run as,
// which the kernel reports.
package peer
