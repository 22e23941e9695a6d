// Package idempotency returns the result of a generation again when it is
// repeated with the same idempotency key. It keeps results in memory only, within
// bounds, and must never write one anywhere.
package idempotency
