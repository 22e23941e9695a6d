// Package watch watches stores whose backends report changes, and keeps for
// each ExternalSecret whether a change was reported that no sync has read yet.
// Reports are hints: the refresh interval remains the guarantee, and a watch
// that cannot be established fails no sync.
package watch
