package mtls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// Credentials gives the TLS settings of a handshake with a provider. *Source is
// one.
type Credentials interface {
	ClientTLS(ctx context.Context, t Trust) (*tls.Config, error)
}

var _ Credentials = (*Source)(nil)

// Transport secures connections with what a source says at the moment of each
// handshake, so that a renewal needs no new connection set.
func Transport(source Credentials, t Trust) credentials.TransportCredentials {
	if t.Socket {
		return &socket{peer: t.PeerUID}
	}

	return &transport{source: source, trust: t}
}

type transport struct {
	source Credentials
	trust  Trust
}

var _ credentials.TransportCredentials = (*transport)(nil)

// ClientHandshake secures a connection to the provider.
func (t *transport) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := t.source.ClientTLS(ctx, t.trust)
	if err != nil {
		return nil, nil, err
	}

	return credentials.NewTLS(config).ClientHandshake(ctx, t.trust.ServerName, conn)
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
	return &transport{source: t.source, trust: t.trust}
}

// OverrideServerName is refused: the name is the registration's.
func (t *transport) OverrideServerName(string) error {
	return errors.New("cannot override the server name")
}

// socket authenticates the peer of a unix socket by its user, which the kernel reports.
type socket struct{ peer int }

var _ credentials.TransportCredentials = (*socket)(nil)

// peerInfo says that the peer is on this machine.
type peerInfo struct{ credentials.CommonAuthInfo }

// AuthType names the kind of security.
func (peerInfo) AuthType() string { return "peer-uid" }

// ClientHandshake checks who listens.
func (s *socket) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uid, err := peerUID(conn)
	if err != nil {
		return nil, nil, err
	}

	if uid != s.peer {
		return nil, nil, fmt.Errorf("the process at the unix socket runs as user %d, not as %d, which the operator's --provider-socket-uid requires", uid, s.peer)
	}

	return conn, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// ServerHandshake is not for clients.
func (s *socket) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("cannot serve with a client's credentials")
}

// Info names the kind of security.
func (s *socket) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer-uid"}
}

// Clone gives equal credentials.
func (s *socket) Clone() credentials.TransportCredentials { return &socket{peer: s.peer} }

// OverrideServerName is refused: there is none.
func (s *socket) OverrideServerName(string) error {
	return errors.New("cannot override the server name")
}
