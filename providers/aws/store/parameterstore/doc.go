// Package parameterstore serves parameters of AWS Systems Manager. It must never
// write a parameter of another owner, nor a value that it already has.
package parameterstore
