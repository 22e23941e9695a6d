// Package mtls secures connections to providers: it says by which certificates
// the operator and a provider know each other, and fetches those of the moment
// for each handshake. It decides nothing about who may be dialled.
package mtls
