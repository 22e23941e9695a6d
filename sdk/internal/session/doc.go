// Package session keeps the stores and generators that calls use: one per
// provider config, authentication namespace and retry settings. An instance is
// constructed when it is first used, shared by concurrent calls, replaced when
// the config or an object that it refers to changes, and closed when no call uses
// it any more.
package session
