// Package apply writes targets: server-side apply, and only where the target
// differs. It knows a target by its metadata alone; what the Secret holds is
// judged from the hashes on it and from its managed fields, so that no Secret
// has to be read.
package apply
