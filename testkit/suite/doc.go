// Package suite runs the product for all tests of one package, and has what such
// tests share: namespaces, manifests, waiting for conditions. A test works in a
// namespace of its own, so that tests run in parallel on one control plane,
// unless it counts requests or stops what others use.
//
// A package's TestMain calls Main. What each process does with its rights is
// recorded, see Rights.
package suite
