package installation

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/external-secrets/eso/testkit/repository"
)

// BinariesEnv names a folder with the programs, for callers that have built
// them already, as Bazel has.
const BinariesEnv = "ESO_BINARIES"

// commands are the programs that an installation runs, by package relative to
// the repository.
func commands() map[string]string {
	return map[string]string{
		"external-secrets":    "./core/cmd/external-secrets",
		"provider-aws":        "./providers/aws/cmd/provider-aws",
		"provider-fake":       "./providers/fake/cmd/provider-fake",
		"provider-kubernetes": "./providers/kubernetes/cmd/provider-kubernetes",
		"provider-vault":      "./providers/vault/cmd/provider-vault",
		"provider-webhook":    "./providers/webhook/cmd/provider-webhook",
	}
}

// Build gives a folder with the programs: that of BinariesEnv, or dir after a
// build. Callers that start several installations need them only once.
func Build(ctx context.Context, dir string, progress io.Writer) (string, error) {
	if given := os.Getenv(BinariesEnv); given != "" {
		for name := range commands() {
			if _, err := os.Stat(filepath.Join(given, name)); err != nil {
				return "", fmt.Errorf("cannot use %s: %w", BinariesEnv, err)
			}
		}

		return given, nil
	}

	root, err := repository.Root()
	if err != nil {
		return "", err
	}

	began := time.Now()

	fmt.Fprintln(progress, "building the operator and the providers ...")

	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + string(filepath.Separator)}
	for _, command := range commands() {
		args = append(args, command)
	}

	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK="+filepath.Join(root, "go.work"))

	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the operator and the providers: %w\n%s", err, strings.TrimSpace(string(output)))
	}

	fmt.Fprintf(progress, "built in %s\n", time.Since(began).Round(time.Second/10))

	return dir, nil
}
