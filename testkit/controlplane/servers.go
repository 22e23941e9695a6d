package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/external-secrets/eso/testkit/process"
)

// startAttempts is how often the servers are tried on new ports: envtest finds
// free ones, and another program may take them before they are used.
const startAttempts = 3

// servers are the two processes that envtest runs: etcd and kube-apiserver.
type servers struct {
	plane     *envtest.ControlPlane
	etcd      *process.Output
	apiServer *process.Output
	// release ends the goroutine whose thread the processes were forked from.
	release chan struct{}
}

// startServers starts both servers and waits until they answer.
func startServers(ctx context.Context, dir, assets string, opts Options) (*servers, error) {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := newServers(filepath.Join(dir, fmt.Sprintf("servers-%d", attempt)), assets, opts)
		if err != nil {
			return nil, err
		}
		if err = s.start(); err == nil {
			return s, nil
		}
		err = fmt.Errorf("%w; their last output:\n%s", err, s.tail())
		if attempt == startAttempts || !s.portTaken() {
			return nil, err
		}
	}
}

func newServers(dir, assets string, opts Options) (*servers, error) {
	// Envtest would take the certificates of an earlier control plane for its
	// own.
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("cannot remove an earlier control plane: %w", err)
	}
	programs, err := mortal(filepath.Join(dir, "bin"), assets, etcdProgram, apiServerProgram)
	if err != nil {
		return nil, err
	}
	s := &servers{
		etcd:      process.NewOutput(etcdProgram, opts.Log),
		apiServer: process.NewOutput(apiServerProgram, opts.Log),
		release:   make(chan struct{}),
	}
	s.plane = &envtest.ControlPlane{
		KubectlPath: filepath.Join(assets, kubectlProgram),
		Etcd: &envtest.Etcd{
			Path:         programs[etcdProgram],
			DataDir:      filepath.Join(dir, "etcd"),
			StartTimeout: startTimeout,
			StopTimeout:  stopTimeout,
			Out:          s.etcd,
			Err:          s.etcd,
		},
		APIServer: &envtest.APIServer{
			Path:         programs[apiServerProgram],
			CertDir:      filepath.Join(dir, "apiserver"),
			StartTimeout: startTimeout,
			StopTimeout:  stopTimeout,
			Out:          s.apiServer,
			Err:          s.apiServer,
		},
	}
	for _, dir := range []string{s.plane.Etcd.DataDir, s.plane.APIServer.CertDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot create a folder for the servers: %w", err)
		}
	}
	s.plane.Etcd.Configure().Set("log-level", "warn")
	return s, configureAPIServer(s.plane.APIServer.Configure(), opts)
}

// configureAPIServer sets what differs from envtest's defaults, then what the
// caller wants.
func configureAPIServer(args *envtest.Arguments, opts Options) error {
	// The issuer that clusters usually have; envtest's changes with the port.
	args.Set("service-account-issuer", "https://kubernetes.default.svc.cluster.local")
	// A loopback address must not stand in the endpoints of the service
	// "kubernetes", so these are not maintained.
	args.Set("advertise-address", "127.0.0.1")
	args.Set("endpoint-reconciler-type", "none")
	if !opts.WithoutControllerManager {
		// Envtest turns the admission of ServiceAccounts off because nothing
		// would make the default ones. Here the controller manager does.
		args.Disable("disable-admission-plugins")
	}

	given := map[string][]string{}
	for _, flag := range opts.APIServerFlags {
		name, value, ok := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if !ok || !strings.HasPrefix(flag, "--") {
			return fmt.Errorf("cannot use the API server flag %q: it is not --name=value", flag)
		}
		given[name] = append(given[name], value)
	}
	for name, values := range given {
		args.Set(name, values...)
	}
	return nil
}

// start runs envtest's part on one operating system thread that lives as long
// as the servers: the parent-death signal of mortal is tied to that thread.
func (s *servers) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- s.plane.Start()
		<-s.release
	}()
	if err := <-started; err != nil {
		// A late failure of envtest leaves its processes running.
		return errors.Join(err, s.stop())
	}
	return nil
}

// stop ends the API server, then etcd: the former hangs without the latter.
func (s *servers) stop() error {
	defer close(s.release)
	return s.plane.Stop()
}

// signingKey is the path of the key that signs ServiceAccount tokens.
func (s *servers) signingKey() string {
	return filepath.Join(s.plane.APIServer.CertDir, "sa-signer.key")
}

// tail is the end of the servers' output, for errors.
func (s *servers) tail() string {
	return strings.Join(slices.Concat(s.etcd.Tail(errorLines), s.apiServer.Tail(errorLines)), "\n")
}

func (s *servers) portTaken() bool {
	return strings.Contains(s.tail(), "address already in use")
}

// mortal returns paths under which programs run that die with the process that
// starts them. Envtest starts its processes itself and cannot set a
// parent-death signal, but setpriv, where it is installed, sets it and then
// becomes the program. Without it the programs' own paths are returned.
func mortal(dir, assets string, names ...string) (map[string]string, error) {
	paths := map[string]string{}
	setpriv, err := exec.LookPath("setpriv")
	able := err == nil && exec.Command(setpriv, "--pdeathsig", "KILL", "--", setpriv, "--version").Run() == nil
	if able {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot create a folder for the servers: %w", err)
		}
	}
	for _, name := range names {
		program := filepath.Join(assets, name)
		if !able {
			paths[name] = program
			continue
		}
		script := fmt.Sprintf("#!/bin/sh\nexec %s --pdeathsig KILL -- %s \"$@\"\n", quote(setpriv), quote(program))
		paths[name] = filepath.Join(dir, name)
		if err := writeProgram(paths[name], script); err != nil {
			return nil, fmt.Errorf("cannot write the starter of %s: %w", name, err)
		}
	}
	return paths, nil
}

// writeProgram keeps the calling process from forking meanwhile: the child would
// have the file open for writing, and a file like that cannot be run.
func writeProgram(path, content string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(content), 0o700)
}

// quote returns one word of the shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
