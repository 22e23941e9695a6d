// Package plan decides what a sync of one ExternalSecret will do: whether it
// is due, which stores are read for what, and which target comes of it. It is
// pure: it reads the object that it is given and does no I/O.
package plan
