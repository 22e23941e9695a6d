package peer

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// security of a socket.
type security struct{ uid int }

var _ credentials.TransportCredentials = (*security)(nil)

// Credentials accept calls of processes of one user only.
func Credentials(uid int) credentials.TransportCredentials { return &security{uid} }

// info describes a peer on this machine.
type info struct{ credentials.CommonAuthInfo }

// AuthType names the kind of security.
func (info) AuthType() string { return "peer-uid" }

// ServerHandshake checks the user of the peer.
func (s *security) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uid, err := userOf(conn)
	if err != nil {
		return nil, nil, err
	}

	if uid != s.uid {
		return nil, nil, fmt.Errorf("the caller runs as user %d, not as %d", uid, s.uid)
	}

	return conn, info{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

// ClientHandshake is not for servers.
func (s *security) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("cannot call with a server's credentials")
}

// Info names the kind of security.
func (s *security) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer-uid"}
}

// Clone returns equal credentials.
func (s *security) Clone() credentials.TransportCredentials { return &security{s.uid} }

// OverrideServerName is refused: a socket has no server name.
func (s *security) OverrideServerName(string) error {
	return errors.New("cannot override the server name")
}
