// Package measure reads what a run costs: the CPU time and memory of the
// processes that this one has started, the requests that the API server has
// served, those that a backend has, and how latencies are spread. It only
// reads; what is too much is decided elsewhere.
package measure
