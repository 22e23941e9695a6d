// Package counting counts what the product costs where it is paid: the requests
// that the API server and Vault receive. Its tests run one after the other, on a
// control plane of their own.
//
//test:inputs providers/fake/config/* providers/fake/crds/* providers/vault/config/* providers/vault/crds/*
//test:programs providers/fake/cmd/* providers/vault/cmd/*
package counting

import (
	"testing"

	"github.com/external-secrets/eso/testkit/suite"
)

// product is shared by all tests.
var product *suite.Suite

func TestMain(m *testing.M) {
	suite.Main(m, &product, suite.Options{
		Providers: map[string][]string{"fake": nil, "vault": nil}, Vault: true, Serial: true,
		OperatorFlags: []string{"--loglevel", "debug", "--unsafe-allow-generic-targets"},
	})
}
