// Package cluster connects to an API server with the credentials of a config. It
// must never use the provider's own.
package cluster
