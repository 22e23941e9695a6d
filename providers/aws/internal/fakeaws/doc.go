// Package fakeaws is a server that speaks AWS's protocols and answers as a test
// says. It is for what no emulator shows: refusals, throttling, credentials that
// end. It knows no secrets of its own, and checks no signature.
package fakeaws
