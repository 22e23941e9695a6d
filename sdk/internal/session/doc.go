// Package session keeps the stores that calls use: one per provider config,
// authentication namespace and retry settings, made when it is first needed,
// shared by concurrent calls, made anew when the config or anything that it
// refers to changes, and closed when no call uses it any more.
package session
