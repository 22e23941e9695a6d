// Package secretstore keeps the status of SecretStores and ClusterSecretStores:
// what each is bound to, and whether its provider accepts its config.
package secretstore
