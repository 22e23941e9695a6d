// Package tlsfiles serves TLS from files that another process renews, and accepts
// exactly one client identity.
package tlsfiles
