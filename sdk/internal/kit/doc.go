// Package kit tests whether a provider implements the protocol. It calls any
// endpoint, in whatever language the provider is written, and uses nothing but
// the protocol and a Target.
//
// A test is a value. What a provider claims in GetInfo decides which tests
// apply to it; a claim that no test could exercise is reported as such. No
// report and no error holds a value that a Target names or a provider answers.
//
//test:inputs docs/conformance.md
package kit
