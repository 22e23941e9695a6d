// Package operator puts the operator together: flags, caches, controllers. A
// build that serves further kinds of stores adds their Openers to it.
package operator
