package tests

import (
	"testing"
)

func TestSmoke(t *testing.T) {
	out, err := product.Kubectl(t.Context(), "", "get", "secretproviders", "-o", "wide")
	t.Log(out, err)
}
