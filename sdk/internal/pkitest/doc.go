// Package pkitest makes certificates for tests. Nothing that ships may import
// it.
package pkitest
