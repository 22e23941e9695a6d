package providerclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/external-secrets/eso/core/internal/address"
)

// Endpoint is where a provider listens and who it must be. Endpoints compare
// with ==; connections are shared between equal ones only.
type Endpoint struct {
	// Provider is the name of the registration; empty where there is none.
	Provider string
	// Address to dial; it has passed the address policy.
	Address address.Address
	// ServerName that the provider's certificate must be for.
	ServerName string
	// Identity that the certificate must carry as a URI name; empty where the
	// certificate is not the operator's own making.
	Identity string
	// MaxConcurrent requests in flight; 0 means 64.
	MaxConcurrent int
	// PerSecond requests on average; 0 means unlimited.
	PerSecond int
}

// Credentials gives the operator's own certificate and the authorities that a
// provider's certificate must chain to. It is asked at each handshake.
type Credentials interface {
	ClientTLS(ctx context.Context) (*tls.Certificate, *x509.CertPool, error)
}

// transport is TLS whose certificates are those of the moment of the
// handshake, so that a renewal needs no new connection set.
type transport struct {
	source   Credentials
	endpoint Endpoint
}

var _ credentials.TransportCredentials = (*transport)(nil)

// ClientHandshake secures a connection to the provider.
func (t *transport) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	own, authorities, err := t.source.ClientTLS(ctx)
	if err != nil {
		return nil, nil, err
	}

	return credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         t.endpoint.ServerName,
		RootCAs:            authorities,
		Certificates:       []tls.Certificate{*own},
		VerifyConnection:   t.verify,
		ClientSessionCache: nil,
	}).ClientHandshake(ctx, t.endpoint.ServerName, conn)
}

// verify pins the provider's identity: two providers may share a host.
func (t *transport) verify(state tls.ConnectionState) error {
	if t.endpoint.Identity == "" {
		return nil
	}

	leaf := state.PeerCertificates[0]
	for _, uri := range leaf.URIs {
		if uri.String() == t.endpoint.Identity {
			return nil
		}
	}

	return fmt.Errorf("x509: the certificate of %q is not for %q", leaf.Subject.CommonName, t.endpoint.Identity)
}

// ServerHandshake is not for clients.
func (t *transport) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("cannot serve with a client's credentials")
}

// Info says that connections are secured by TLS.
func (t *transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone gives equal credentials.
func (t *transport) Clone() credentials.TransportCredentials {
	return &transport{source: t.source, endpoint: t.endpoint}
}

// OverrideServerName is refused: the name is the registration's.
func (t *transport) OverrideServerName(string) error {
	return errors.New("cannot override the server name")
}
