// Package workspace reads go.work and the go.mod files that it names. It reads
// files only and runs no command.
package workspace
