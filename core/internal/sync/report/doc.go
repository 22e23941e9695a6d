// Package report tells users what became of a sync: the Ready condition, the
// times in the status, and events. It writes only what differs, and events
// only on a change.
package report
