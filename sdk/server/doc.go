// Package server runs a provider process: it serves the provider protocol over
// gRPC with mutual TLS, checks on whose behalf each call is made, keeps the
// stores, turns errors into codes with details, and serves health and metrics.
// It must never log, count or report a secret value.
package server
