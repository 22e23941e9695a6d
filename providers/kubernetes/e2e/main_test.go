// Package e2e runs the provider in the product: an operator and a control plane,
// and further API servers.
//
//test:inputs providers/kubernetes/config/* providers/kubernetes/crds/*
//test:programs providers/kubernetes/cmd/*
package e2e

import (
	"testing"

	"github.com/external-secrets/eso/testkit/suite"
)

// product is shared by all tests: each works in a namespace of its own.
var product *suite.Suite

func TestMain(m *testing.M) {
	suite.Main(m, &product, suite.Options{Providers: map[string][]string{"kubernetes": nil}})
}
