// Package parameterstore serves parameters of AWS Systems Manager. It writes
// only what its owner's mark allows, and nothing that is there already.
package parameterstore
