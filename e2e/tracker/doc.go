// Package tracker follows all ExternalSecrets of a cluster through one watch
// and reports when they are as expected. A benchmark thereby observes them without
// polling the API server.
package tracker
