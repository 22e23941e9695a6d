// Package svid takes a provider's certificate, and the authorities of its
// callers, from the SPIFFE Workload API.
package svid
