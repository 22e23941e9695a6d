package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAssetsFromEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(AssetsEnv, dir)
	for _, name := range []string{etcdProgram, apiServerProgram, kubectlProgram} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// This is what setup-envtest gives.
	if _, err := Assets(t.Context(), nil); err == nil ||
		!strings.Contains(err.Error(), controllerManagerProgram) || !strings.Contains(err.Error(), AssetsEnv+"="+dir) {
		t.Errorf("Assets without a controller manager: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, controllerManagerProgram), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := Assets(t.Context(), nil); got != dir || err != nil {
		t.Errorf("Assets = %q, %v; want %q", got, err, dir)
	}
}

// The version that is stamped into the programs must be that of their code.
func TestKubernetesVersion(t *testing.T) {
	gomod, err := os.ReadFile("build/kubernetes/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "require k8s.io/kubernetes " + kubernetesVersion + "\n"; !strings.Contains(string(gomod), want) {
		t.Errorf("build/kubernetes/go.mod has no line %q", want)
	}
}
