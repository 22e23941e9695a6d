// Package caller verifies the tokens that calls carry: a ServiceAccount's, for
// this provider's own audience, by TokenReview. It adds to what TLS has pinned
// and never replaces it.
package caller
