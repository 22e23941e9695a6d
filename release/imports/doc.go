// Package imports holds the rule of the repository: which module may import
// which, and what a small operator must never link. Violations decides on a
// graph of packages; a test of this package runs it on the whole workspace.
package imports
