// Package trains reads trains.yaml: which modules the repository releases, and
// at which version each is. It looks at nothing else; whether the file agrees
// with the repository is for package consistency.
package trains
