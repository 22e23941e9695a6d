// Package motoserver runs moto, a server that speaks AWS's protocols, as a
// process on the loopback interface: Secrets Manager, Parameter Store, STS.
// Its data is in memory and empty at first.
//
// It is for tests and demos. moto takes any credentials for good; a proxy in
// front of it refuses those that a test names, counts what comes in, and can be
// slow. ESO_MOTO_SERVER names a moto_server to run. Without it the package makes
// a small root file system of Debian's moto in the build cache, for which it
// needs Debian and root, and runs that in a chroot.
package motoserver
