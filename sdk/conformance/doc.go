// Package conformance tests from Go whether a provider keeps the protocol: the
// same tests as those of the command provider-conformance. The target, in YAML,
// names the provider and the secrets that its backend holds; docs/conformance.md
// has its fields.
package conformance
