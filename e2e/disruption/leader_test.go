package disruption

import (
	"context"
	"slices"
	"testing"

	"github.com/external-secrets/eso/testkit/suite"
)

// The operator works with leader election, and with the rights that it has.
func TestLeaderElection(t *testing.T) {
	if err := product.StopOperator(); err != nil {
		t.Fatal(err)
	}

	if err := product.StartOperator(t.Context(), append(slices.Clone(product.OperatorFlags), "--enable-leader-election")...); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := product.StopOperator(); err != nil {
			t.Error(err)
		}

		if err := product.StartOperator(context.Background(), product.OperatorFlags...); err != nil {
			t.Error(err)
		}
	})

	ns := product.Namespace(t)
	product.Apply(t, ns, suite.FakeStore+suite.SimpleES("app", "store"))
	product.Holds(t, ns, "app", "password", "s3cret")
}
