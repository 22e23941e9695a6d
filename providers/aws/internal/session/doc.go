// Package session is a config's access to AWS: its credentials, the client
// configuration that all its calls share, and what AWS's errors mean. It never
// takes credentials from anywhere but what the config names, and never puts one
// into an error.
package session
