package suite

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"

	"github.com/external-secrets/eso/testkit/installation"
)

// StubStore is a stub of a provider that serves stores.
type StubStore interface {
	pb.ProviderInfoServer
	pb.SecretStoreServer
}

// Stub is a provider of Fakes that answers as a test says.
type Stub struct {
	pb.UnimplementedProviderInfoServer
	pb.UnimplementedSecretStoreServer

	// Info answers GetInfo.
	Info *pb.GetInfoResponse
	// Read answers GetSecrets.
	Read func(*pb.GetSecretsRequest) *pb.GetSecretsResponse
}

// GetInfo answers Info.
func (s *Stub) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	return s.Info, nil
}

// GetStatus reports that the provider is well.
func (s *Stub) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	return &pb.GetStatusResponse{State: pb.GetStatusResponse_STATE_OK}, nil
}

// Validate accepts every config.
func (s *Stub) Validate(context.Context, *pb.ValidateRequest) (*pb.ValidateResponse, error) {
	return &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_VALID}, nil
}

// GetSecrets answers as Read does.
func (s *Stub) GetSecrets(_ context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	return s.Read(request), nil
}

// StubInfo describes a provider of Fakes that can be read.
func StubInfo(name string) *pb.GetInfoResponse {
	return &pb.GetInfoResponse{
		Name: name, Version: "9.9.9", ProtocolVersions: []string{pb.ProtocolVersion},
		Kinds: []*pb.Kind{{
			ApiVersion: v2alpha1.DefaultConfigAPIVersion, Kind: "Fake", Service: pb.Service_SERVICE_SECRET_STORE,
			Capabilities: []pb.Capability{pb.Capability_CAPABILITY_READ},
		}},
	}
}

// Listen opens a port of loopback for a stub.
func Listen(t *testing.T) net.Listener {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	return listener
}

// Register creates a SecretProvider for one namespace, which is deleted after
// the test.
func (s *Suite) Register(t *testing.T, name, address, namespace string) *v2alpha1.SecretProvider {
	t.Helper()

	registration := SecretProvider(name)
	registration.Spec = v2alpha1.SecretProviderSpec{
		Address: address,
		TLS:     &v2alpha1.ProviderTLS{CertificateSecretRef: &v2alpha1.CertificateSecretReference{Namespace: namespace}},
		// Else there would be two providers for the stores of other tests.
		AllowedNamespaces: []string{namespace},
	}

	if err := s.Client.Create(t.Context(), registration); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Client.Delete(context.Background(), registration) })

	return registration
}

// Issued waits for the certificate that the operator issues to a registration,
// and returns it with the bundle of the CA.
func (s *Suite) Issued(t *testing.T, namespace, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()

	var (
		pair tls.Certificate
		pool = x509.NewCertPool()
	)

	Eventually(t, func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name + "-tls"}, secret); err != nil {
			return err
		}

		pool.AppendCertsFromPEM(secret.Data["ca.crt"])

		var err error
		pair, err = tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])

		return err
	})

	return pair, pool
}

// Serve serves a stub over TLS with a certificate until the test ends; clients
// signs those of callers, and may be nil.
func Serve(t *testing.T, listener net.Listener, pair tls.Certificate, clients *x509.CertPool, stub StubStore) {
	t.Helper()

	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}

	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxSendMsgSize(2<<30))
	pb.RegisterProviderInfoServer(server, stub)
	pb.RegisterSecretStoreServer(server, stub)

	go func() { _ = server.Serve(listener) }()

	t.Cleanup(server.Stop)
}

// Instance starts another process of the fake provider for one namespace,
// registered as "fake-" and the namespace, until the test ends.
func (s *Suite) Instance(t *testing.T, namespace string, instance installation.Instance) *installation.Provider {
	t.Helper()

	instance.Provider, instance.Name, instance.AllowedNamespaces = "fake", "fake-"+namespace, []string{namespace}

	p, err := s.StartInstance(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = s.Client.Delete(context.Background(), SecretProvider(instance.Name))
		_ = p.Stop()
	})

	return p
}
