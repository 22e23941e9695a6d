// Package tracker follows all ExternalSecrets of a cluster through one watch
// and tells when they are as somebody expects. It is how a benchmark learns of
// them without asking the API server again and again.
package tracker
