// Package operator assembles and runs the operator: flags, caches, controllers.
// A build that serves further kinds passes Extensions to Main or Run; no line of
// the operator changes for them.
package operator
