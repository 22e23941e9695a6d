// Package resolver follows the references of provider configs to Secrets,
// ConfigMaps and ServiceAccounts. It is the one place of a provider that reads
// them, and denies by default: one resolver serves one namespace and follows
// nothing that leads out of it.
package resolver
