// Package secretsmanager serves secrets of AWS Secrets Manager. It must never
// write a secret of another owner, nor a value that it already has.
package secretsmanager
