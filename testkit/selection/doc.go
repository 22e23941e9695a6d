// Package selection decides which tests a change can affect. It identifies
// everything that the tests of a package depend on by one hash, and records
// which hashes have passed on this machine. It compares contents only: neither
// commits nor modification times decide anything.
//
// The inputs of a package's tests are
//
//   - the source and embedded files of the package and of every package of the
//     workspace that it or its tests import, however indirectly;
//   - every file of its own folder, and of its folder testdata;
//   - the versions of all other modules that these packages come from;
//   - go.work, the version of Go, the platform, the flags of the build, and
//     environment variables of this project;
//   - whatever directives in one of these packages declare.
//
// Directives declare what imports do not show. Each is a comment line of
// its own in a Go file, test files included, with patterns relative to the
// repository's root:
//
//	//test:inputs docs/*.md api/crds/**
//	//test:programs core/cmd/external-secrets providers/*/cmd/*
//
// The first names files that tests read; "**" matches any number of folders.
// The second names main packages that tests build and run: all that these
// depend on is an input, too. A directive applies to every test that depends on
// the package which it is written in, so that a package that starts a program
// declares it once for all of its users.
//
// A third one, //test:outputs, is for a test that reads the files which other
// tests have left: see OutputEnv and OutputsEnv.
//
// Declarations can be held to: see Undeclared.
package selection
