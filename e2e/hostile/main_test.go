// Package hostile serves providers that attack, hang, lose calls or are away, and
// measures what others notice of it. Its tests run one after the other, on a
// control plane of their own.
//
//test:inputs providers/fake/config/* providers/fake/crds/* providers/vault/config/* providers/vault/crds/*
//test:programs providers/fake/cmd/* providers/vault/cmd/*
package hostile

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
