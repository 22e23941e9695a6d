// Package kit tests whether a provider keeps the protocol. It talks to
// any endpoint, in whatever language the provider is written, and knows nothing
// of it but what the protocol and a Target say.
//
// A test is a value. What a provider claims in GetInfo decides which tests
// apply to it; a claim that no test could exercise is reported as such. No
// report and no error holds a value that a Target names or a provider answers.
package kit
