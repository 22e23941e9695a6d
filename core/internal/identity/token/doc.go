// Package token gets the ServiceAccount tokens that the operator shows to
// providers, keeps them until shortly before they end, and never hands out one
// that the API server itself would accept.
package token
