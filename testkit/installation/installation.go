package installation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	esv1 "github.com/external-secrets/eso/api/externalsecrets/v1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/release/metadata"

	"github.com/external-secrets/eso/testkit/controlplane"
	"github.com/external-secrets/eso/testkit/process"
	"github.com/external-secrets/eso/testkit/repository"
	"github.com/external-secrets/eso/testkit/secretmount"
)

// OperatorNamespace is where the operator lives.
const OperatorNamespace = "external-secrets"

// OperatorAccount is the name of its ServiceAccount.
const OperatorAccount = "external-secrets-operator"

const (
	stopTimeout  = 15 * time.Second
	readyTimeout = 60 * time.Second
)

// Options of an Installation.
type Options struct {
	// Log receives the output of all processes; nil discards it.
	Log io.Writer
	// Progress receives a line per step; nil discards it.
	Progress io.Writer
	// APIServerFlags are added to the API server's.
	APIServerFlags []string
	// Providers are the names of the providers that may be started.
	Providers []string
	// Binaries is a folder that Build has filled; empty has the programs built.
	Binaries string
}

// Installation is the product on a control plane of its own.
type Installation struct {
	// ControlPlane that everything runs on.
	ControlPlane *controlplane.ControlPlane
	// Client of an administrator.
	Client client.Client
	// Clientset of an administrator.
	Clientset kubernetes.Interface

	options  Options
	root     string
	dir      string
	binaries string
	operator *process.Process
	flags    []string
	metrics  int

	// mu guards providers, which tests start at the same time.
	mu        sync.Mutex
	providers []*Provider
}

// Start builds the programs, starts a control plane, and installs the CRDs and
// rights of the operator. The operator itself is not started yet. On success
// the caller must call Stop.
func Start(ctx context.Context, options Options) (_ *Installation, err error) {
	if options.Log == nil {
		options.Log = io.Discard
	}

	if options.Progress == nil {
		options.Progress = io.Discard
	}

	i := &Installation{options: options}

	defer func() {
		if err != nil {
			err = errors.Join(err, i.Stop())
		}
	}()

	if i.root, err = repository.Root(); err != nil {
		return nil, err
	}

	if i.dir, err = os.MkdirTemp("", "external-secrets-"); err != nil {
		return nil, fmt.Errorf("cannot create a working folder: %w", err)
	}

	if _, err = controlplane.Assets(ctx, options.Progress); err != nil {
		return nil, err
	}

	if i.binaries = options.Binaries; i.binaries == "" {
		if i.binaries, err = Build(ctx, filepath.Join(i.dir, "bin"), options.Providers, options.Progress); err != nil {
			return nil, err
		}
	}

	fmt.Fprintln(options.Progress, "starting the control plane ...")

	if i.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{Log: options.Log, APIServerFlags: options.APIServerFlags}); err != nil {
		return nil, err
	}

	if err = i.clients(); err != nil {
		return nil, err
	}

	return i, i.install(ctx)
}

func (i *Installation) clients() error {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, esv1.AddToScheme, v2alpha1.AddToScheme} {
		if err := add(known); err != nil {
			return fmt.Errorf("cannot build the scheme: %w", err)
		}
	}

	config := i.ControlPlane.Config()

	var err error
	if i.Client, err = client.New(config, client.Options{Scheme: known}); err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}

	if i.Clientset, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}

	return nil
}

// install applies what the operator's chart would.
func (i *Installation) install(ctx context.Context) error {
	if err := i.account(ctx, OperatorNamespace, OperatorAccount); err != nil {
		return err
	}

	if _, err := i.Kubectl(ctx, "", "apply", "--server-side", "--validate=strict",
		"-f", filepath.Join(i.root, "api", "crds"), "-f", filepath.Join(i.root, "core", "config")); err != nil {
		return err
	}

	_, err := i.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "crd", "-l", "external-secrets.io/component=controller")

	return err
}

// account creates a namespace and a ServiceAccount in it.
func (i *Installation) account(ctx context.Context, namespace, name string) error {
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
	} {
		if err := i.Client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot create %T %s/%s: %w", object, namespace, name, err)
		}
	}

	return nil
}

// Kubectl runs kubectl as an administrator and gives its output.
func (i *Installation) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, i.ControlPlane.KubectlPath(), append([]string{"--kubeconfig", i.ControlPlane.Kubeconfig()}, args...)...)
	command.Stdin = strings.NewReader(stdin)

	output, err := command.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("cannot run kubectl %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}

	return string(output), nil
}

// Program is the file of one of the programs that Build builds.
func (i *Installation) Program(name string) string { return filepath.Join(i.binaries, name) }

// StartOperator starts the operator with further flags, and returns when it is
// ready.
func (i *Installation) StartOperator(ctx context.Context, flags ...string) error {
	kubeconfig, err := i.ControlPlane.KubeconfigFor(ctx, types.NamespacedName{Namespace: OperatorNamespace, Name: OperatorAccount})
	if err != nil {
		return err
	}

	live, err := freePort()
	if err != nil {
		return err
	}

	if i.metrics, err = freePort(); err != nil {
		return err
	}

	i.flags = flags
	args := append([]string{
		"--kubeconfig", kubeconfig, "--namespace", OperatorNamespace, "--metrics-addr", net.JoinHostPort("127.0.0.1", strconv.Itoa(i.metrics)),
		"--live-addr", net.JoinHostPort("127.0.0.1", strconv.Itoa(live)),
	}, flags...)

	i.operator, err = process.Start(ctx, process.Options{
		Name: "external-secrets", Path: filepath.Join(i.binaries, "external-secrets"), Args: args, Log: i.options.Log, Env: environment(),
	})
	if err != nil {
		return err
	}

	return i.operatorReady(ctx, live)
}

func (i *Installation) operatorReady(ctx context.Context, live int) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	return i.until(ctx, i.operator, func() error { return probe(ctx, live) })
}

// MetricsURL is where the operator's metrics are.
func (i *Installation) MetricsURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(i.metrics)) + "/metrics"
}

// Operator is the operator's process.
func (i *Installation) Operator() *process.Process { return i.operator }

// StopOperator stops the operator in order; KillOperator as a crash does.
func (i *Installation) StopOperator() error { return i.operator.Stop(stopTimeout) }

// KillOperator ends the operator with SIGKILL.
func (i *Installation) KillOperator() error { return i.operator.Kill() }

// RestartOperator starts the operator with the flags it last had.
func (i *Installation) RestartOperator(ctx context.Context) error {
	return i.StartOperator(ctx, i.flags...)
}

// Provider is a provider process and its registration.
type Provider struct {
	// Name of the provider and of its SecretProvider.
	Name string
	// Address where it listens.
	Address string
	// TLSDir holds its certificate.
	TLSDir string

	// described is what the metadata.yaml of its program says.
	described    metadata.Metadata
	installation *Installation
	process      *process.Process
	mount        *secretmount.Mount
	args, env    []string
	metrics      int
}

// Instance is a process of a provider.
type Instance struct {
	// Provider of this repository, such as "fake".
	Provider string
	// Name of the SecretProvider; empty means that of the provider.
	Name string
	// Socket to listen on; empty means a port of loopback.
	Socket string
	// TLS of the registration, and the folder with the certificates. Without a
	// folder the operator issues them.
	TLS    v2alpha1.ProviderTLS
	TLSDir string
	// AllowedNamespaces of the registration.
	AllowedNamespaces []string
	// Flags of the process besides.
	Flags []string
	// Env of the process besides, as NAME=value.
	Env []string
}

// StartProvider installs a provider of this repository, registers it, starts
// its process with further flags, and returns when the operator finds it ready.
// The operator must run.
func (i *Installation) StartProvider(ctx context.Context, name string, flags ...string) (*Provider, error) {
	return i.InstallInstance(ctx, Instance{Provider: name, Flags: flags})
}

// InstallInstance does as StartProvider, for a process of a certain kind.
func (i *Installation) InstallInstance(ctx context.Context, instance Instance) (*Provider, error) {
	if err := i.installProvider(ctx, instance.Provider); err != nil {
		return nil, err
	}

	p, err := i.StartInstance(ctx, instance)
	if err != nil {
		return nil, err
	}

	return p, p.WaitReady(ctx)
}

// StartInstance registers a process of a provider that StartProvider has
// installed, and starts it.
func (i *Installation) StartInstance(ctx context.Context, instance Instance) (*Provider, error) {
	if instance.Name == "" {
		instance.Name = instance.Provider
	}

	listen, address := "unix://"+instance.Socket, "unix://"+instance.Socket
	if instance.Socket == "" {
		port, err := freePort()
		if err != nil {
			return nil, err
		}

		listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		address = listen
	}

	described, err := described(i.root, instance.Provider)
	if err != nil {
		return nil, err
	}

	namespace := described.Program()
	p := &Provider{Name: instance.Name, described: described, installation: i, Address: address, TLSDir: instance.TLSDir}

	i.mu.Lock()
	i.providers = append(i.providers, p)
	i.mu.Unlock()

	managed := instance.TLSDir == "" && instance.Socket == "" && (instance.TLS.Mode == "" || instance.TLS.Mode == v2alpha1.TLSModeManaged)
	if managed {
		p.TLSDir = filepath.Join(i.dir, instance.Name, "tls")
		instance.TLS.CertificateSecretRef = &v2alpha1.CertificateSecretReference{Namespace: namespace}
	}

	registration := &v2alpha1.SecretProvider{
		ObjectMeta: metav1.ObjectMeta{Name: instance.Name},
		Spec:       v2alpha1.SecretProviderSpec{Address: p.Address, TLS: &instance.TLS, AllowedNamespaces: instance.AllowedNamespaces},
	}

	if err := i.Client.Create(ctx, registration); err != nil {
		return nil, fmt.Errorf("cannot register provider %q: %w", instance.Name, err)
	}

	if managed {
		if err := p.mountCertificate(ctx, namespace); err != nil {
			return nil, err
		}
	}

	kubeconfig, err := i.ControlPlane.KubeconfigFor(ctx, types.NamespacedName{Namespace: namespace, Name: described.Account()})
	if err != nil {
		return nil, err
	}

	if p.metrics, err = freePort(); err != nil {
		return nil, err
	}

	p.args = []string{
		"--kubeconfig", kubeconfig, "--listen", listen, "--shutdown-grace", "5s",
		"--metrics-listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.metrics)), "--log-format", "text",
	}

	if p.TLSDir != "" {
		p.args = append(p.args, "--tls-dir", p.TLSDir)
	}

	p.args = append(p.args, instance.Flags...)
	p.env = append(environment(), instance.Env...)

	return p, p.Start(ctx)
}

// mountCertificate keeps the certificate that the operator issues in files, as
// the kubelet does.
func (p *Provider) mountCertificate(ctx context.Context, namespace string) (err error) {
	if p.mount, err = secretmount.Start(p.installation.Clientset, types.NamespacedName{Namespace: namespace, Name: p.Name + "-tls"}, p.TLSDir); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	return p.mount.Wait(ctx)
}

// installProvider applies what the provider's chart would.
func (i *Installation) installProvider(ctx context.Context, name string) error {
	described, err := described(i.root, name)
	if err != nil {
		return err
	}

	folder := filepath.Join(i.root, filepath.FromSlash(described.Dir))
	account, namespace := described.Account(), described.Program()

	if err := i.account(ctx, namespace, account); err != nil {
		return err
	}

	if _, err := i.Kubectl(ctx, "", "apply", "--server-side", "--validate=strict", "-f", filepath.Join(folder, "crds"), "-f", filepath.Join(folder, "config")); err != nil {
		return err
	}

	var roles rbacv1.ClusterRoleList
	if err := i.Client.List(ctx, &roles); err != nil {
		return fmt.Errorf("cannot list ClusterRoles: %w", err)
	}

	for _, role := range roles.Items {
		// The role that ends so is the operator's, by aggregation.
		if !strings.HasPrefix(role.Name, account) || strings.HasSuffix(role.Name, "-configs") {
			continue
		}

		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
		}
		if err := i.Client.Create(ctx, binding); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot bind ClusterRole %q: %w", role.Name, err)
		}
	}

	return nil
}

// Start starts the provider's process, also after Stop or Kill. It returns
// when the process listens.
func (p *Provider) Start(ctx context.Context) error {
	var err error

	p.process, err = process.Start(ctx, process.Options{
		Name: "provider-" + p.Name, Path: filepath.Join(p.installation.binaries, p.described.Program()), Args: p.args,
		Log: p.installation.options.Log, Env: p.env,
	})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	return p.installation.until(ctx, p.process, func() error { return probe(ctx, p.metrics) })
}

// Process of the provider.
func (p *Provider) Process() *process.Process { return p.process }

// Kill ends the process with SIGKILL.
func (p *Provider) Kill() error { return p.process.Kill() }

// Stop ends the process in order.
func (p *Provider) Stop() error { return p.process.Stop(stopTimeout) }

// MetricsURL is where the provider's metrics are.
func (p *Provider) MetricsURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.metrics)) + "/metrics"
}

// WaitReady returns when the operator finds the provider ready.
func (p *Provider) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()

	return p.installation.until(ctx, p.process, func() error {
		var registration v2alpha1.SecretProvider
		if err := p.installation.Client.Get(ctx, client.ObjectKey{Name: p.Name}, &registration); err != nil {
			return err
		}

		ready := meta.FindStatusCondition(registration.Status.Conditions, v2alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("SecretProvider %q is not Ready: %v", p.Name, ready)
		}

		return nil
	})
}

// until waits for a check to pass while a process lives.
func (i *Installation) until(ctx context.Context, p *process.Process, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}

		select {
		case <-p.Done():
			return fmt.Errorf("the process ended early: %w\n%s", p.Err(), strings.Join(p.LogTail(20), "\n"))
		case <-ctx.Done():
			return fmt.Errorf("%w: %w\n%s", ctx.Err(), err, strings.Join(p.LogTail(20), "\n"))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// StopProcesses stops the operator and all providers. The control plane goes on.
// How they end is checked by tests that stop them.
func (i *Installation) StopProcesses() {
	if i.operator != nil {
		_ = i.operator.Stop(stopTimeout)
	}

	for _, p := range i.providers {
		if p.process != nil {
			_ = p.process.Stop(stopTimeout)
		}

		if p.mount != nil {
			p.mount.Stop()
			p.mount = nil
		}
	}
}

// Stop ends everything, the operator first, and removes the working folder.
func (i *Installation) Stop() error {
	i.StopProcesses()

	var errs []error

	if i.ControlPlane != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()

		errs = append(errs, i.ControlPlane.Stop(ctx))
	}

	if i.dir != "" {
		errs = append(errs, os.RemoveAll(i.dir))
	}

	return errors.Join(errs...)
}

// environment of a process: nothing that would point it elsewhere.
func environment() []string {
	var kept []string

	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if name == "PATH" || name == "HOME" || strings.HasPrefix(name, "GO") {
			kept = append(kept, entry)
		}
	}

	return kept
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("cannot find a free port: %w", err)
	}
	defer listener.Close()

	address, _ := listener.Addr().(*net.TCPAddr)

	return address.Port, nil
}
