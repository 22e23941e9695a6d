// Package secretsmanager serves secrets of AWS Secrets Manager. It writes only
// what its owner's mark allows, and nothing that is there already.
package secretsmanager
