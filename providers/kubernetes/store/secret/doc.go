// Package secret reads, writes and watches the Secrets of one namespace. A key
// is the name of a Secret, a property a key of its data.
package secret
