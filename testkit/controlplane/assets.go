package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/external-secrets/eso/testkit/buildcache"
)

// AssetsEnv names the environment variable that points at a folder of programs
// to use instead of building them, as envtest and setup-envtest know it.
const AssetsEnv = "KUBEBUILDER_ASSETS"

const (
	etcdProgram              = "etcd"
	apiServerProgram         = "kube-apiserver"
	controllerManagerProgram = "kube-controller-manager"
	kubectlProgram           = "kubectl"
)

// kubernetesVersion is the version of k8s.io/kubernetes that
// build/kubernetes/go.mod requires; a test compares the two.
const kubernetesVersion = "v1.36.3"

// Assets returns a folder that holds etcd, kube-apiserver,
// kube-controller-manager and kubectl. It is the one KUBEBUILDER_ASSETS names;
// otherwise the programs are built from the Go module proxy, once per machine
// (package buildcache). Progress receives a line per step of such a build and
// may be nil.
func Assets(ctx context.Context, progress io.Writer) (string, error) {
	if dir := os.Getenv(AssetsEnv); dir != "" {
		if err := checkAssets(dir); err != nil {
			return "", fmt.Errorf("cannot use %s=%s: %w", AssetsEnv, dir, err)
		}
		return filepath.Abs(dir)
	}
	return buildcache.Build(ctx, modules(), progress)
}

// checkAssets names all that is missing, not just the first.
func checkAssets(dir string) error {
	var missing []string
	for _, name := range []string{etcdProgram, apiServerProgram, controllerManagerProgram, kubectlProgram} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("it lacks the program %s (setup-envtest provides no controller manager); add it, or unset the variable to have all of them built", strings.Join(missing, ", "))
	}
	return nil
}

func modules() []buildcache.Module {
	return []buildcache.Module{
		{
			Dir:      "testkit/controlplane/build/etcd",
			Programs: map[string]string{etcdProgram: "go.etcd.io/etcd/server/v3"},
			LDFlags:  "-s -w",
		},
		{
			Dir: "testkit/controlplane/build/kubernetes",
			Programs: map[string]string{
				apiServerProgram:         "k8s.io/kubernetes/cmd/kube-apiserver",
				controllerManagerProgram: "k8s.io/kubernetes/cmd/kube-controller-manager",
				kubectlProgram:           "k8s.io/kubernetes/cmd/kubectl",
			},
			LDFlags: kubernetesLDFlags(),
		},
	}
}

// kubernetesLDFlags stamp the version, which the API server reports to its
// clients and derives its served API versions and feature gates from.
func kubernetesLDFlags() string {
	number := strings.Split(strings.TrimPrefix(kubernetesVersion, "v"), ".")
	stamps := []string{
		"gitVersion=" + kubernetesVersion,
		"gitMajor=" + number[0],
		"gitMinor=" + number[1],
		"gitTreeState=archive",
		"gitCommit=go-module-proxy",
		// A constant, so that builds are reproducible.
		"buildDate=1970-01-01T00:00:00Z",
	}
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, stamp := range stamps {
			flags = append(flags, "-X", pkg+"."+stamp)
		}
	}
	return strings.Join(flags, " ")
}
