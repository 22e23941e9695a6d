package controlplane

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/external-secrets/eso/testkit/process"
)

const (
	// startTimeout bounds each step of a start, generously: test machines are
	// shared, and a start that takes longer is broken.
	startTimeout = 60 * time.Second
	// stopTimeout is how long each process has for a graceful end.
	stopTimeout  = 20 * time.Second
	pollInterval = 50 * time.Millisecond
	// tokenLifetime outlasts any test or demo.
	tokenLifetime = 30 * 24 * time.Hour
	// errorLines is how much of a program's output an error quotes.
	errorLines = 15
)

// Options choose how a control plane runs. The zero value is a complete one.
type Options struct {
	// Dir is where the control plane keeps its files: data, certificates and
	// kubeconfigs. It is made if need be, left in place by Stop, and serves one
	// control plane at a time; the next one in it starts empty. Empty means a
	// temporary folder that Stop removes.
	Dir string
	// APIServerFlags are further flags of kube-apiserver, each "--name=value".
	// They replace the flags of the same names that it would have had.
	APIServerFlags []string
	// Log receives the output of all processes, one whole line per Write, as
	// "[program] line"; it must be safe for concurrent use. Nil discards it,
	// and an error then quotes the last lines.
	Log io.Writer
	// Progress receives a line per step when the programs have to be built
	// first (Assets). May be nil.
	Progress io.Writer
	// WithoutControllerManager starts faster and leaves out what the controller
	// manager does: no garbage collection, no deletion of namespaces, no
	// ServiceAccount "default". Tokens still work.
	WithoutControllerManager bool
}

// ControlPlane is a control plane that runs. Its methods are safe for
// concurrent use, except Stop, which is called once and last.
type ControlPlane struct {
	dir               string
	temporary         bool
	kubectl           string
	config            *rest.Config
	clients           kubernetes.Interface
	servers           *servers
	controllerManager *process.Process
}

// Start starts a control plane and returns when it is ready: its API server
// says so, and the controller manager has created the ServiceAccount "default" of
// the namespace "default". Every control plane is empty and on ports of its
// own, so any number may run beside each other.
//
// Ctx bounds the start and has no influence afterwards. A start that fails
// leaves neither a process nor a temporary folder behind. On success the caller
// must call Stop.
//
// On Linux all processes die with the calling one, however it ends, provided
// that the program setpriv of util-linux is installed; the temporary folder
// then stays.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	assets, err := Assets(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{dir: opts.Dir, kubectl: filepath.Join(assets, kubectlProgram)}
	if err := c.start(ctx, assets, opts); err != nil {
		// Started processes must be stopped even if ctx has ended.
		err = errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
		return nil, fmt.Errorf("cannot start the control plane: %w", err)
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, assets string, opts Options) error {
	if err := c.makeDir(); err != nil {
		return err
	}
	var err error
	if c.servers, err = startServers(ctx, c.dir, assets, opts); err != nil {
		return err
	}
	admin, err := c.addUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, c.Kubeconfig())
	if err != nil {
		return err
	}
	c.config = admin
	if c.clients, err = kubernetes.NewForConfig(admin); err != nil {
		return fmt.Errorf("cannot create a client: %w", err)
	}
	if err := c.await(ctx, "kube-apiserver to be ready", c.ready); err != nil {
		return fmt.Errorf("%w\n%s", err, c.servers.tail())
	}
	if opts.WithoutControllerManager {
		return nil
	}
	if err := c.startControllerManager(ctx, assets, opts.Log); err != nil {
		return err
	}
	if err := c.await(ctx, "the ServiceAccount default/default", c.defaultServiceAccountExists); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(c.controllerManager.LogTail(errorLines), "\n"))
	}
	return nil
}

func (c *ControlPlane) makeDir() error {
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			return fmt.Errorf("cannot create a temporary folder: %w", err)
		}
		c.dir, c.temporary = dir, true
		return nil
	}
	dir, err := filepath.Abs(c.dir)
	if err != nil {
		return fmt.Errorf("cannot use the folder %s: %w", c.dir, err)
	}
	c.dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot create the folder for the control plane: %w", err)
	}
	return nil
}

// Config is a client configuration of a cluster administrator, without a
// client-side rate limit. Every call returns a copy.
func (c *ControlPlane) Config() *rest.Config {
	return rest.CopyConfig(c.config)
}

// Kubeconfig is the path of a kubeconfig file of a cluster administrator.
func (c *ControlPlane) Kubeconfig() string {
	return filepath.Join(c.dir, "admin.kubeconfig")
}

// KubectlPath is the path of a kubectl of the control plane's version. It needs
// a flag with the kubeconfig to use.
func (c *ControlPlane) KubectlPath() string {
	return c.kubectl
}

// APIServerURL is where the API server listens, such as
// "https://127.0.0.1:41297". Its certificate authority is in Config.
func (c *ControlPlane) APIServerURL() string {
	return c.config.Host
}

// KubeconfigFor writes a kubeconfig with a token of a ServiceAccount, minted by
// the API server for its own audience: what a pod of that ServiceAccount would
// be. The ServiceAccount must exist. The token is valid for 30 days, or until
// the ServiceAccount is deleted. Each call mints a token and overwrites the
// file of the call before for the same ServiceAccount.
func (c *ControlPlane) KubeconfigFor(ctx context.Context, serviceAccount types.NamespacedName) (path string, err error) {
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := c.clients.CoreV1().ServiceAccounts(serviceAccount.Namespace).
		CreateToken(ctx, serviceAccount.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot mint a token of ServiceAccount %s: %w", serviceAccount, err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token.Status.Token
	path = filepath.Join(c.dir, "serviceaccount."+serviceAccount.Namespace+"."+serviceAccount.Name+".kubeconfig")
	if err := writeKubeconfig(path, config, serviceAccount.Namespace); err != nil {
		return "", fmt.Errorf("cannot write the kubeconfig of ServiceAccount %s: %w", serviceAccount, err)
	}
	return path, nil
}

// SigningKey signs the tokens of ServiceAccounts.
func (c *ControlPlane) SigningKey() (crypto.Signer, error) {
	text, err := os.ReadFile(c.servers.signingKey())
	if err != nil {
		return nil, fmt.Errorf("cannot read the key that signs tokens: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key that signs tokens: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("cannot sign tokens with a %T", key)
	}
	return signer, nil
}

// Stop ends all processes, the API server before its etcd, and removes the
// temporary folder. When ctx ends first Stop returns without waiting further,
// while what still runs is ended in the background; the context of a finished
// test has ended, so that Stop wants another one.
func (c *ControlPlane) Stop(ctx context.Context) error {
	stopped := make(chan error, 1)
	go func() { stopped <- c.stop() }()
	select {
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the control plane to stop: %w", ctx.Err())
	}
}

func (c *ControlPlane) stop() error {
	var errs []error
	if c.controllerManager != nil {
		errs = append(errs, c.controllerManager.Stop(stopTimeout))
	}
	if c.servers != nil {
		errs = append(errs, c.servers.stop())
	}
	if c.temporary {
		if err := os.RemoveAll(c.dir); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove the folder of the control plane: %w", err))
		}
	}
	return errors.Join(errs...)
}

// addUser creates a user with a client certificate, and its kubeconfig.
func (c *ControlPlane) addUser(user envtest.User, kubeconfig string) (*rest.Config, error) {
	// A negative QPS turns the client's rate limit off.
	added, err := c.servers.plane.AddUser(user, &rest.Config{QPS: -1})
	if err != nil {
		return nil, fmt.Errorf("cannot add the user %s: %w", user.Name, err)
	}
	config := added.Config()
	config.Host = strings.TrimSuffix(config.Host, "/")
	if err := writeKubeconfig(kubeconfig, config, metav1.NamespaceDefault); err != nil {
		return nil, fmt.Errorf("cannot write the kubeconfig of the user %s: %w", user.Name, err)
	}
	return config, nil
}

// startControllerManager runs the controller manager as on a real cluster, each
// controller with the rights of its own ServiceAccount.
func (c *ControlPlane) startControllerManager(ctx context.Context, assets string, log io.Writer) error {
	kubeconfig := filepath.Join(c.dir, controllerManagerProgram+".kubeconfig")
	if _, err := c.addUser(envtest.User{Name: "system:kube-controller-manager"}, kubeconfig); err != nil {
		return err
	}
	rootCA := filepath.Join(c.dir, "ca.crt")
	if err := os.WriteFile(rootCA, c.config.CAData, 0o600); err != nil {
		return fmt.Errorf("cannot write the certificate authority: %w", err)
	}
	var err error
	c.controllerManager, err = process.Start(ctx, process.Options{
		Name: controllerManagerProgram,
		Path: filepath.Join(assets, controllerManagerProgram),
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + c.servers.signingKey(),
			"--root-ca-file=" + rootCA,
			"--leader-elect=false",
			// The default rate limit makes the start 5 s longer.
			"--kube-api-qps=1000",
			"--kube-api-burst=1000",
			// It has no clients, so it needs no port.
			"--secure-port=0",
		},
		Dir: c.dir,
		Log: log,
	})
	return err
}

func (c *ControlPlane) ready(ctx context.Context) (bool, error) {
	err := c.clients.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	return err == nil, nil
}

func (c *ControlPlane) defaultServiceAccountExists(ctx context.Context) (bool, error) {
	if err := c.controllerManager.Err(); err != nil {
		return false, err
	}
	_, err := c.clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *ControlPlane) await(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, startTimeout, true, condition)
	if err != nil {
		return fmt.Errorf("cannot wait for %s: %w", what, err)
	}
	return nil
}
