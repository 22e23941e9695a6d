// Package functional tests what the product does for its users, in parallel on
// one control plane: each test in a namespace of its own.
//
//test:inputs providers/fake/config/* providers/fake/crds/* providers/vault/config/* providers/vault/crds/* docs/samples/*
//test:programs providers/fake/cmd/* providers/vault/cmd/* cli/cmd/esoctl
package functional

import (
	"context"
	"testing"

	"github.com/external-secrets/eso/testkit/suite"
	"github.com/external-secrets/eso/testkit/workloadapi"
)

var (
	// product is shared by all tests.
	product *suite.Suite
	// trustDomain issues SVIDs to the workloads that tests name; the operator's is
	// "operator".
	trustDomain *workloadapi.TrustDomain
)

func TestMain(m *testing.M) {
	suite.Main(m, &product, suite.Options{
		Providers: map[string][]string{"fake": nil, "vault": nil}, Vault: true,
		OperatorFlags: []string{"--loglevel", "debug", "--unsafe-allow-generic-targets"},
		Prepare: func(_ context.Context, s *suite.Suite) (err error) {
			if trustDomain, err = workloadapi.New("corp", s.SocketDir); err != nil {
				return err
			}

			s.OperatorFlags = append(s.OperatorFlags, "--spiffe-endpoint-socket", trustDomain.Socket("operator"))

			return trustDomain.Serve("operator", "spiffe://corp/operator")
		},
	})
}
