package counting

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/external-secrets/eso/testkit/suite"
)

// Defaults that the API server adds to a target are no drift: they cost no
// repairs.
func TestDefaultsOfTheAPIServerCostNoRepairs(t *testing.T) {
	ns := product.Namespace(t)
	product.Apply(t, ns, suite.GenericTargets)
	product.Apply(t, ns, suite.FakeWith("  - {key: db, value: '{\"a\":\"1\"}'}\n"))

	before := repairs(t)

	product.Apply(t, ns, strings.Replace(suite.ES("filled", `  target:
    manifest: {apiVersion: example.com/v1, kind: Thing}
    template:
      templateFrom: [{literal: "[{port: 80}]", target: spec.ports}]
  dataFrom: [{extract: {key: db}}]
`), "refreshInterval: 1s", "refreshInterval: 1h", 1))
	product.Synced(t, ns, "filled")

	suite.Never(t, 4*time.Second, func(context.Context) error {
		if n := repairs(t) - before; n > 0 {
			return fmt.Errorf("%v repairs of a target that was not changed", n)
		}

		return nil
	})
}

// repairs that the operator has counted.
func repairs(t *testing.T) float64 {
	t.Helper()

	families := suite.Metrics(t, product.MetricsURL())
	sum := 0.0
	for _, metric := range families["externalsecret_repairs_total"].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}

	return sum
}
