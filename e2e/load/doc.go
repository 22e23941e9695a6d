// Package load fills a cluster with what a benchmark measures: namespaces with
// a store each, ExternalSecrets spread over them, what they read at the
// backend, and Secrets that belong to no ExternalSecret. It also measures what the
// control plane allows a client that only writes. It never judges.
package load
