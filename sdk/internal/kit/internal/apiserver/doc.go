// Package apiserver is as much of a Kubernetes API server as a provider under
// test needs: it holds a few objects that can be read, and gives tokens that
// nobody accepts. It is no place for anything secret: whoever runs on the
// machine can read it.
package apiserver
