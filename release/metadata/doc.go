// Package metadata reads what each provider declares in its
// metadata.yaml, the one source of the table in its README, of the list in
// docs/providers.md, of its reviewers, and of the capabilities that its
// conformance test holds it to.
package metadata
