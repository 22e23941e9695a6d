// Package vaultserver runs a real Vault as a process on the loopback interface,
// in memory and unsealed, with a KV engine of version 2 at secret/ and one of
// version 1 at kv1/. Auth methods are there to be enabled: AppRole, AWS, Google
// Cloud, JWT, Kubernetes, LDAP, TLS certificates, userpass.
//
// It is for tests and demos. It never listens on anything but loopback, keeps nothing on disk, and never writes a token or a value to a
// log. Namespaces and the other enterprise features do not exist.
//
//test:inputs testkit/vaultserver/build/**
package vaultserver
