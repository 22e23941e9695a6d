// Package e2e runs the provider in the product: an operator and a control plane,
// and a real Vault.
//
//test:inputs providers/vault/config/* providers/vault/crds/*
//test:programs providers/vault/cmd/*
package e2e

import (
	"testing"

	"github.com/external-secrets/eso/testkit/suite"
)

// product is shared by all tests: each works in a namespace of its own.
var product *suite.Suite

func TestMain(m *testing.M) {
	suite.Main(m, &product, suite.Options{Providers: map[string][]string{"vault": nil}, Vault: true})
}
