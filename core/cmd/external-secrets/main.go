// Command external-secrets is the operator: it keeps Secrets in sync with what
// providers read from their backends, and links no backend itself.
package main

import (
	"os"

	"github.com/external-secrets/eso/core/operator"
)

func main() {
	os.Exit(operator.Main("external-secrets", os.Args[1:], os.Stdout, os.Stderr))
}
