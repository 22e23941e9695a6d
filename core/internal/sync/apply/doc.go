// Package apply writes targets: server-side apply, and only where the target
// differs. It knows a Secret by its metadata alone; what the Secret holds is
// judged from the hashes on it and from its managed fields, so that none has to
// be read, but for the first look at one that others made and that is only
// added to. Targets of other kinds are no secrets, and are read whole.
package apply
