// Package apiserver implements the part of a Kubernetes API server that a
// provider under test needs: it serves a few objects read-only and issues tokens
// that no server accepts. It must not contain secrets: every process on the
// machine can read them.
package apiserver
