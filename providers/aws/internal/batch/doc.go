// Package batch splits reads into batches, and records for a while that AWS does
// not allow batches, so that they are not tried every time. It does no I/O.
package batch
