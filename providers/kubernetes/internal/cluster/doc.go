// Package cluster reaches an API server with the credentials that a config
// names, and with no others. It must never use the provider's own.
package cluster
