// Package tlsfiles serves TLS from files that somebody else renews, and
// accepts one client identity alone.
package tlsfiles
