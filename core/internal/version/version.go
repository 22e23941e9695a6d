// Package version holds what the linker stamps in.
package version

// Set with -X (go build) or x_defs (Bazel).
var (
	// Version of the operator's module, such as "0.1.0".
	Version = "0.0.0-dev"
	// Commit that it was built from.
	Commit = "unknown"
)

// String is the version shown to people.
func String() string { return Version + " (" + Commit + ")" }
