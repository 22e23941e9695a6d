// Package process runs a child process of a test or a demo: it starts the
// program, keeps its output, and ends it.
//
// No other package of this module starts a long-lived child. It never starts a
// shell, never restarts what has ended, never prints the arguments or the
// environment of a child (they may hold credentials), and never signals a
// process that it did not start.
package process
