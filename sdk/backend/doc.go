// Package backend is how a provider calls its backend over HTTP: paced, counted
// and with answers of bounded size. It knows no backend, and must never write
// down what a request or an answer holds.
package backend
