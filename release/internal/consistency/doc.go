// Package consistency reports where release trains and modules disagree. It
// decides from what it is given, and reads nothing.
package consistency
