// Package store is the AWS provider: its kinds, whose stores are in the packages
// below it. It does no I/O.
package store
