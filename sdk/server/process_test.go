package server

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/sdk/provider"
)

func TestRunExits(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")

	for _, test := range []struct {
		name, why      string
		args           []string
		code           int
		stdout, stderr string
	}{
		{name: "version", why: "what runs must be known without a cluster", args: []string{"--version"}, code: 0, stdout: "provider-test 1.2.3 (abc)\n"},
		{name: "help", why: "asking for help is no failure", args: []string{"--help"}, code: 0, stderr: "-operator-identity"},
		{name: "unknown flag", why: "a flag of a newer version must not be ignored", args: []string{"--lisen=:1"}, code: 2, stderr: "flag provided but not defined: -lisen"},
		{name: "argument", why: "likewise", args: []string{"serve"}, code: 2, stderr: `unexpected argument "serve"`},
		{name: "no address", why: "each mistake names its flag", args: []string{"--listen="}, code: 2, stderr: "--listen: must not be empty"},
		{name: "half an address", why: "likewise", args: []string{"--listen=localhost"}, code: 2, stderr: "--listen: address localhost: missing port"},
		{name: "relative socket", why: "the base directory would be unknown", args: []string{"--listen=unix://run.sock"}, code: 2, stderr: "absolute path"},
		{name: "no TLS", why: "plain text on a network must not be reached by leaving something out", args: []string{"--tls-dir="}, code: 2, stderr: "--tls-dir: needed"},
		{name: "no identity", why: "any certificate of the CA would do", args: []string{"--operator-identity="}, code: 2, stderr: "--operator-identity: must not be empty"},
		{name: "SPIFFE address", why: "each mistake names its flag", args: []string{"--spiffe-endpoint-socket=run/agent.sock", "--operator-identity=spiffe://corp/operator"}, code: 2, stderr: "--spiffe-endpoint-socket: "},
		{name: "SPIFFE operator", why: "the operator's own authority issues no SVIDs", args: []string{"--spiffe-endpoint-socket=unix:///run/agent.sock"}, code: 2, stderr: "--operator-identity: with --spiffe-endpoint-socket"},
		{name: "caller", why: "each mistake names its flag", args: []string{"--caller=operator"}, code: 2, stderr: `"operator" is not of the form namespace/name`},
		{name: "caller at a socket", why: "tokens travel over TLS only", args: []string{"--listen=unix:///run/x.sock", "--caller=eso/operator"}, code: 2, stderr: "--caller: tokens travel over TLS only"},
		{name: "unknown audience", why: "no token could contain it", args: []string{"--spiffe-endpoint-socket=unix:///run/agent.sock", "--operator-identity=spiffe://corp/operator", "--caller=eso/operator"}, code: 2, stderr: "--token-audience: needed"},
		{name: "own identity", why: "an empty namespace is ambiguous", args: []string{"--own-identity-namespace="}, code: 2, stderr: "-own-identity-namespace"},
		{name: "the provider's own flag", why: "it is parsed with the others", args: []string{"--region=x", "--version"}, code: 0, stdout: "provider-test 1.2.3 (abc)\n"},
		{name: "metrics address", why: "each mistake names its flag", args: []string{"--metrics-listen=8080"}, code: 2, stderr: "--metrics-listen: address 8080"},
		{name: "negative grace", why: "likewise", args: []string{"--shutdown-grace=-1s"}, code: 2, stderr: "--shutdown-grace: must not be negative"},
		{name: "log level", why: "likewise", args: []string{"--log-level=loud"}, code: 2, stderr: "-log-level"},
		{name: "log format", why: "likewise", args: []string{"--log-format=xml"}, code: 2, stderr: `"xml" is neither json nor text`},
		{
			name: "several mistakes", why: "they are reported together, not one after the other",
			args: []string{"--listen=localhost", "--log-format=xml"}, code: 2, stderr: "--log-format",
		},
		{name: "no cluster", why: "status 1 means that the flags are valid", args: []string{"--kubeconfig=" + missing}, code: 1, stderr: "cannot find the Kubernetes API server"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer

			p := (&backend{}).provider()
			p.Flags = func(flags *flag.FlagSet) { flags.String("region", "", "of the tests") }

			code := run(t.Context(), p, test.args, &stdout, &stderr)
			if code != test.code || stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("%s: exit %d, stdout %q, stderr %q", test.why, code, stdout.String(), stderr.String())
			}
		})
	}
}

func kubeconfig(t *testing.T) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
`

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// A whole run, on a socket: that is how it is served in the full build's Pod.
func TestRunsOnASocket(t *testing.T) {
	// A socket's path is short.
	dir, err := os.MkdirTemp("", "sdk") //nolint:usetesting // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "p.sock")

	// A process that was killed has left its socket.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}

	stale.SetUnlinkOnClose(false)

	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	log := &journal{}
	exit := make(chan int, 1)

	go func() {
		exit <- run(ctx, (&backend{}).provider(), []string{"--listen=unix://" + path, "--kubeconfig=" + kubeconfig(t), "--metrics-listen=", "--log-format=text"}, log, log)
	}()

	await(t, "it serves", func() bool { return strings.Contains(log.String(), "msg=serving") })

	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is open to others: %v, %v", info.Mode(), err)
	}

	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if got, err := pb.NewProviderInfoClient(conn).GetInfo(t.Context(), &pb.GetInfoRequest{}); err != nil || got.GetName() != "test" {
		t.Errorf("GetInfo: %v, %v", got, err)
	}

	_, err = pb.NewSecretStoreClient(conn).GetSecrets(t.Context(), &pb.GetSecretsRequest{Context: callContext(), Reads: []*pb.SecretRead{read("a")}})
	if got := failureOf(err); got.Code != codes.Unavailable || got.Reason != pb.ReasonUnavailable {
		t.Errorf("a read without an API server: %v", err)
	}

	stopped := time.Now()

	stop()

	select {
	case code := <-exit:
		if took := time.Since(stopped); code != 0 || took < drainPause {
			t.Errorf("exit %d after %s:\n%s", code, took, log)
		}
	case <-time.After(patience):
		t.Fatal("it did not end")
	}
}

func TestServeFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	occupied := taken.Addr().String()

	for _, test := range []struct {
		name, why string
		provider  provider.Provider
		args      []string
		stderr    string
	}{
		{name: "no kinds", why: "a provider that serves nothing is a mistake of its author", provider: provider.Provider{Name: "empty"}, stderr: "no name or no kinds"},
		{name: "port taken", why: "the address is named", args: []string{"--listen=" + occupied}, stderr: "cannot listen on --listen " + occupied},
		{name: "no certificates", why: "without them it must not serve in another way", args: []string{"--listen=127.0.0.1:0", "--tls-dir=" + t.TempDir()}, stderr: "cannot read TLS file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := (&backend{}).provider()
			if test.provider.Name != "" {
				p = test.provider
			}

			var stderr bytes.Buffer
			if code := run(t.Context(), p, append(test.args, "--kubeconfig="+kubeconfig(t), "--metrics-listen="), &stderr, &stderr); code != 1 {
				t.Errorf("%s: exit %d", test.why, code)
			}

			if !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("%s: %q does not say %q", test.why, stderr.String(), test.stderr)
			}
		})
	}
}

// A failure while it serves, or just before, ends the process with an error, so
// that it is restarted.
func TestServeOnFails(t *testing.T) {
	options := Options{Client: cluster(), PeerIdentity: pb.OperatorIdentity, Grace: time.Second}

	err := serve(t.Context(), refusedListener{NewMemoryListener()}, (&backend{}).provider(), options)
	if err == nil || !strings.Contains(err.Error(), "cannot serve gRPC: the socket is closed") {
		t.Errorf("the listener failed, and serving ended with %v", err)
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	options.MetricsListen = taken.Addr().String()
	listener := NewMemoryListener()

	err = serve(t.Context(), listener, (&backend{}).provider(), options)
	if err == nil || !strings.Contains(err.Error(), "cannot listen on --metrics-listen "+options.MetricsListen) {
		t.Errorf("the metrics address is taken, and serving ended with %v", err)
	}

	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the gRPC listener was left open: %v", err)
	}
}
