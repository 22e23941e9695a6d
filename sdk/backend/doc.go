// Package backend has an HTTP transport for calls of backends, which counts them,
// limits their rate, repeats them and bounds the size of responses. It must never
// log the contents of a request or a response.
package backend
