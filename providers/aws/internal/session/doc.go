// Package session is a config's access to AWS: its credentials, the client
// configuration that all its calls share, and the conversion of AWS's errors. It
// must never use credentials that the config does not name, and never put one
// into an error.
package session
