// Package e2e runs the provider in the product: an operator and a control plane,
// and HTTPS servers that stand for an API.
//
//test:inputs providers/webhook/config/* providers/webhook/crds/*
//test:programs providers/webhook/cmd/*
package e2e

import (
	"testing"

	"github.com/external-secrets/eso/testkit/suite"
)

// product is shared by all tests: each works in a namespace of its own.
var product *suite.Suite

// providerFlags let the provider reach the APIs of tests, which are on this
// machine.
var providerFlags = []string{"--allow-network=127.0.0.0/8"}

func TestMain(m *testing.M) {
	suite.Main(m, &product, suite.Options{Providers: map[string][]string{"webhook": providerFlags}})
}
