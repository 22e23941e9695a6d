// Package extensiontest tests that an operator.Extension adds kinds of stores
// and generators to the operator, on a real API server. It has no code of its
// own.
//
//test:inputs api/crds/*
package extensiontest
