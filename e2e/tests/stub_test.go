package tests

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/external-secrets/eso/api/provider/v2alpha1"
	"github.com/external-secrets/eso/api/secretstore/v2alpha1"
)

// stub is a provider that answers as a test says.
type stub struct {
	pb.UnimplementedProviderInfoServer
	pb.UnimplementedSecretStoreServer

	info *pb.GetInfoResponse
	read func(*pb.GetSecretsRequest) *pb.GetSecretsResponse
}

func (s *stub) GetInfo(context.Context, *pb.GetInfoRequest) (*pb.GetInfoResponse, error) {
	return s.info, nil
}

func (s *stub) GetStatus(context.Context, *pb.GetStatusRequest) (*pb.GetStatusResponse, error) {
	return &pb.GetStatusResponse{State: pb.GetStatusResponse_STATE_OK}, nil
}

func (s *stub) Validate(context.Context, *pb.ValidateRequest) (*pb.ValidateResponse, error) {
	return &pb.ValidateResponse{Verdict: pb.ValidateResponse_VERDICT_VALID}, nil
}

func (s *stub) GetSecrets(_ context.Context, request *pb.GetSecretsRequest) (*pb.GetSecretsResponse, error) {
	return s.read(request), nil
}

// stubInfo is that of a provider of Fakes.
func stubInfo(name string) *pb.GetInfoResponse {
	return &pb.GetInfoResponse{
		Name: name, Version: "9.9.9", ProtocolVersions: []string{pb.ProtocolVersion},
		Kinds: []*pb.Kind{{
			ApiVersion: v2alpha1.DefaultConfigAPIVersion, Kind: "Fake", Service: pb.Service_SERVICE_SECRET_STORE,
			Capabilities: []pb.Capability{pb.Capability_CAPABILITY_READ},
		}},
	}
}

// listen opens a port for a stub.
func listen(t *testing.T) net.Listener {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	return listener
}

// register makes a SecretProvider that is gone after the test.
func register(t *testing.T, name, address, namespace string) *v2alpha1.SecretProvider {
	t.Helper()

	registration := secretProvider(name)
	registration.Spec = v2alpha1.SecretProviderSpec{
		Address: address,
		TLS:     &v2alpha1.ProviderTLS{CertificateSecretRef: &v2alpha1.CertificateSecretReference{Namespace: namespace}},
		// Else there would be two providers for the stores of other tests.
		AllowedNamespaces: []string{namespace},
	}

	if err := product.Client.Create(t.Context(), registration); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = product.Client.Delete(context.Background(), registration) })

	return registration
}

// issued waits for the certificate that the operator issues to a registration.
func issued(t *testing.T, namespace, name string) (tls.Certificate, *x509.CertPool) {
	t.Helper()

	var (
		pair tls.Certificate
		pool = x509.NewCertPool()
	)

	eventually(t, func(ctx context.Context) error {
		secret := &corev1.Secret{}
		if err := product.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name + "-tls"}, secret); err != nil {
			return err
		}

		pool.AppendCertsFromPEM(secret.Data["ca.crt"])

		var err error
		pair, err = tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])

		return err
	})

	return pair, pool
}

// served is a provider of the tests' own.
type served interface {
	pb.ProviderInfoServer
	pb.SecretStoreServer
}

// serve serves a stub with a certificate, until the test is over.
func serve(t *testing.T, listener net.Listener, pair tls.Certificate, clients *x509.CertPool, s *stub) {
	t.Helper()
	serveAs(t, listener, pair, clients, s)
}

// serveAs does so for any provider.
func serveAs(t *testing.T, listener net.Listener, pair tls.Certificate, clients *x509.CertPool, s served) {
	t.Helper()

	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}

	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.MaxSendMsgSize(2<<30))
	pb.RegisterProviderInfoServer(server, s)
	pb.RegisterSecretStoreServer(server, s)

	go func() { _ = server.Serve(listener) }()

	t.Cleanup(server.Stop)
}

// foreignCertificate is one that nobody trusts.
func foreignCertificate(t *testing.T) tls.Certificate {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "impostor"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
