// Package report reports the result of a sync to users: the Ready condition, the
// times in the status, and events. It writes only what differs, and events
// only on a change.
package report
