package peer

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// memory is the security of an in-memory listener.
type memory struct{ identity, accepted string }

var _ credentials.TransportCredentials = (*memory)(nil)

// MemoryCredentials accept connections within the process, whose peer has the
// given identity, if it is the accepted one.
func MemoryCredentials(identity, accepted string) credentials.TransportCredentials {
	return &memory{identity: identity, accepted: accepted}
}

// memoryInfo describes a peer in the same process.
type memoryInfo struct{ credentials.CommonAuthInfo }

// AuthType names the kind of security.
func (memoryInfo) AuthType() string { return "memory" }

// ServerHandshake checks the peer.
func (m *memory) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	switch conn.RemoteAddr().(type) {
	case *net.TCPAddr, *net.UnixAddr:
		return nil, nil, fmt.Errorf("the caller is at %s, not in this process", conn.RemoteAddr())
	}

	if m.identity != m.accepted {
		return nil, nil, fmt.Errorf("the caller has identity %q, not %q", m.identity, m.accepted)
	}

	return conn, memoryInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// ClientHandshake is not for servers.
func (m *memory) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("cannot call with a server's credentials")
}

// Info names the kind of security.
func (m *memory) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "memory"}
}

// Clone returns equal credentials.
func (m *memory) Clone() credentials.TransportCredentials {
	return MemoryCredentials(m.identity, m.accepted)
}

// OverrideServerName is refused: a peer in memory has no server name.
func (m *memory) OverrideServerName(string) error {
	return errors.New("cannot override the server name")
}
