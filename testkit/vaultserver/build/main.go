// Command vaultserver runs a real Vault core in memory on the loopback
// interface, initialized and unsealed. It has a KV engine of version 2 at
// secret/, one of version 1 at kv1/, and the auth methods AppRole, AWS, JWT,
// Kubernetes, LDAP, TLS certificates and userpass, which are not enabled yet.
//
// When it serves it prints one line, "ready " and its address; before that,
// with -tls-cert, one with "secured " and the address where it serves TLS. It ends when its
// standard input ends, so that it never outlives the test that started it.
//
// It is for tests alone: it speaks plain HTTP, forgets everything at its end,
// and its root token stands in its arguments.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	authgcp "github.com/hashicorp/vault-plugin-auth-gcp/plugin"
	authjwt "github.com/hashicorp/vault-plugin-auth-jwt"
	authkubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	awsauth "github.com/hashicorp/vault/builtin/credential/aws"
	"github.com/hashicorp/vault/builtin/credential/cert"
	"github.com/hashicorp/vault/builtin/credential/ldap"
	"github.com/hashicorp/vault/builtin/credential/userpass"
	"github.com/hashicorp/vault/helper/namespace"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

const (
	readyTimeout    = 30 * time.Second
	shutdownTimeout = 5 * time.Second
	pollInterval    = 20 * time.Millisecond
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "loopback `address` to serve on; port 0 takes a free one")
	rootToken := flag.String("root-token", "", "the root `token` (required)")
	tlsCert := flag.String("tls-cert", "", "`file` with a certificate: serve TLS, too, on a port of its own, and ask clients for theirs")
	tlsKey := flag.String("tls-key", "", "`file` with the certificate's key")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		// The parent holds the other end and writes nothing.
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := run(ctx, *listen, *rootToken, *tlsCert, *tlsKey); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, rootToken, tlsCert, tlsKey string) error {
	if rootToken == "" {
		return errors.New("cannot start without -root-token")
	}
	listener, err := listenLoopback(listen)
	if err != nil {
		return err
	}
	defer listener.Close()

	core, err := newCore(hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr}))
	if err != nil {
		return err
	}
	defer core.Shutdown()
	if err := prepare(ctx, core, rootToken); err != nil {
		return err
	}

	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core:           core,
		ListenerConfig: &configutil.Listener{Type: "tcp", TLSDisable: true},
	})
	served := make(chan error, 2)
	servers := []*http.Server{{Handler: handler}}
	go func() { served <- servers[0].Serve(listener) }()
	if tlsCert != "" {
		secured, err := listenLoopback("127.0.0.1:0")
		if err != nil {
			return err
		}
		// The auth method for certificates judges them.
		server := &http.Server{Handler: handler, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}}
		servers = append(servers, server)
		go func() { served <- server.ServeTLS(secured, tlsCert, tlsKey) }()
		fmt.Printf("secured https://%s\n", secured.Addr())
	}
	fmt.Printf("ready http://%s\n", listener.Addr())

	select {
	case err := <-served:
		return fmt.Errorf("cannot serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	// Requests that take longer are cut off; their clients are ending too.
	for _, server := range servers {
		_ = server.Shutdown(ctx)
	}
	return nil
}

func listenLoopback(address string) (net.Listener, error) {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot use the address %s: %w", address, err)
	}
	if !tcp.IP.IsLoopback() {
		return nil, fmt.Errorf("cannot use the address %s: it is not loopback", address)
	}
	listener, err := net.ListenTCP("tcp", tcp)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return listener, nil
}

func newCore(logger hclog.Logger) (*vault.Core, error) {
	storage, err := inmem.NewInmem(nil, logger)
	if err != nil {
		return nil, fmt.Errorf("cannot make the storage: %w", err)
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:        storage,
		Logger:          logger,
		DisableMlock:    true,
		BuiltinRegistry: registry{},
		LogicalBackends: map[string]logical.Factory{"kv": kv.Factory},
		CredentialBackends: map[string]logical.Factory{
			"approle": approle.Factory, "aws": awsauth.Factory, "cert": cert.Factory, "gcp": authgcp.Factory, "jwt": authjwt.Factory,
			"kubernetes": authkubernetes.Factory, "ldap": ldap.Factory, "userpass": userpass.Factory,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the core: %w", err)
	}
	return core, nil
}

// prepare initializes and unseals the core, sets up the engines, and returns
// when they can be used.
func prepare(ctx context.Context, core *vault.Core, rootToken string) error {
	ctx, cancel := context.WithTimeout(namespace.RootContext(ctx), readyTimeout)
	defer cancel()
	seal := &vault.SealConfig{SecretShares: 1, SecretThreshold: 1}
	initialized, err := core.Initialize(ctx, &vault.InitParams{BarrierConfig: seal, RecoveryConfig: seal})
	if err != nil {
		return fmt.Errorf("cannot initialize the core: %w", err)
	}
	for _, share := range initialized.SecretShares {
		if _, err := core.Unseal(share); err != nil {
			return fmt.Errorf("cannot unseal the core: %w", err)
		}
	}
	steps := []struct {
		path string
		data map[string]any
	}{
		{"sys/mounts/secret", map[string]any{"type": "kv", "options": map[string]string{"version": "2"}}},
		{"sys/mounts/kv1", map[string]any{"type": "kv", "options": map[string]string{"version": "1"}}},
		{"auth/token/create", map[string]any{"id": rootToken, "policies": []string{"root"}, "no_parent": true}},
	}
	for _, step := range steps {
		if err := request(ctx, core, initialized.RootToken, logical.UpdateOperation, step.path, step.data); err != nil {
			return err
		}
	}
	// A new engine of version 2 refuses requests until it has upgraded itself.
	for {
		err := request(ctx, core, initialized.RootToken, logical.ReadOperation, "secret/config", nil)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollInterval):
		}
	}
}

func request(ctx context.Context, core *vault.Core, token string, operation logical.Operation, path string, data map[string]any) error {
	response, err := core.HandleRequest(ctx, &logical.Request{ClientToken: token, Operation: operation, Path: path, Data: data})
	if err == nil && response != nil {
		err = response.Error()
	}
	if err != nil {
		return fmt.Errorf("cannot %s %s: %w", operation, path, err)
	}
	return nil
}

// registry offers no plugins beyond those that the core is configured with.
type registry struct{}

func (registry) Contains(string, consts.PluginType) bool { return false }

func (registry) Get(string, consts.PluginType) (func() (any, error), bool) { return nil, false }

func (registry) Keys(consts.PluginType) []string { return nil }

func (registry) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

func (registry) DeprecationStatus(string, consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, true
}
