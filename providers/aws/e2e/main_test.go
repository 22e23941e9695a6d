// Package e2e runs the provider in the product: an operator and a control plane,
// and moto, which speaks the protocols of AWS.
//
//test:inputs providers/aws/config/* providers/aws/crds/*
//test:programs providers/aws/cmd/*
package e2e

import (
	"testing"

	"github.com/external-secrets/eso/testkit/suite"
)

// product is shared by all tests: each works in a namespace of its own.
var product *suite.Suite

func TestMain(m *testing.M) {
	suite.Main(m, &product, suite.Options{Programs: []string{"aws"}, Stop: stopAWS})
}
